"""What is remembered of deleted rows: beside the table, so that its readers see none of it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.observe.disk import make_folder

__all__ = ["Tombstones"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tombstone (key TEXT PRIMARY KEY, version INTEGER NOT NULL, at INTEGER NOT NULL)
WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tombstone_at ON tombstone (at);
"""
_LOOKUP = """
SELECT wanted.key, tombstone.version FROM json_each(?) AS wanted
JOIN tombstone ON tombstone.key = wanted.value
"""
_CHUNK = 10_000


@dataclass(slots=True)
class Tombstones:
    """Key → version of each row deleted within the horizon; a small SQLite file.

    A key of a row that came back keeps its tombstone: the larger of both versions counts.

    Args:
        path: The file; made with the first tombstone.
        horizon_seconds: How long to remember.
    """

    path: Path
    horizon_seconds: float
    _purged: float = field(default=float("-inf"))

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            # Who made the file may have been killed before anything was in it.
            connection.executescript(_SCHEMA)
            yield connection

    def versions(self, keys: pa.Array) -> np.ndarray:
        """Return for each key the version it was deleted at, 0 where none is remembered."""
        found: np.ndarray = np.zeros(len(keys), np.int64)
        if not len(keys) or not self.path.is_file():
            return found
        with self._connect() as connection:
            hits = connection.execute(_LOOKUP, (json.dumps(keys.to_pylist()),))
            for number, version in hits:
                found[number] = version
        return found

    def bury(self, keys: Sequence[str], versions: Sequence[int]) -> None:
        """Remember deletions, durably; the larger version of a key stays.

        As many as are remembered, and more, are forgotten if they are past the horizon: the file does not
        grow without end, though nobody ever finds the time to purge it.
        """
        if not keys:
            return
        now = int(time.time())
        make_folder(self.path.parent)
        with self._connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO tombstone VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
                " SET version = excluded.version, at = excluded.at WHERE excluded.version > version",
                ((key, int(version), now) for key, version in zip(keys, versions, strict=True)),
            )
            self._forget(connection, 2 * len(keys))
            connection.execute("COMMIT")

    def add(self, other: Tombstones) -> None:
        """Remember what another remembers, too; what can no longer be read here is given up."""
        if self._damaged():
            self.path.unlink()
        if not other.path.is_file():
            return
        with other._connect() as connection:
            told = connection.execute("SELECT key, version FROM tombstone")
            while page := told.fetchmany(_CHUNK):
                self.bury(*zip(*page, strict=True))

    def _damaged(self) -> bool:
        if not self.path.is_file():
            return False
        try:
            with self._connect() as connection:
                said = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError:
            raise  # the disk refuses, or somebody holds it
        except sqlite3.DatabaseError:
            return True
        return bool(said != ("ok",))

    def purge(self) -> None:
        """Forget what is past the horizon; looks at most once a minute."""
        if time.monotonic() - self._purged < 60 or not self.path.is_file():
            return
        self._purged = time.monotonic()
        with self._connect() as connection:
            self._forget(connection, _CHUNK)

    def _forget(self, connection: sqlite3.Connection, most: int) -> None:
        connection.execute(
            "DELETE FROM tombstone WHERE key IN (SELECT key FROM tombstone WHERE at < ? LIMIT ?)",
            (int(time.time() - self.horizon_seconds), most),
        )
