"""Files that no version within the table's retention needs are removed, as the library's VACUUM decides.

The library is asked which files may go and the sink removes them, for two reasons (ADR 21): the library
counts deletion vectors that are in use among what may go, and each VACUUM of its own makes two versions of
the table, whether there is anything left to remove or not.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from sinks.delta.files import DataFile
from sinks.delta.log import lines_of
from sinks.delta.vectors import vector_file

__all__ = ["Vacuum", "retention_seconds"]

_EVERY = 60.0
_STRANGER_SECONDS = 24 * 3600.0
"""What nobody has committed yet may belong to another writer's long transaction."""
_OURS = re.compile(r"part-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.snappy\.parquet")
_RETENTION = "delta.deletedFileRetentionDuration"
_DEFAULT = 7 * 24 * 3600.0
_UNITS = {
    "millisecond": 0.001,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 7 * 86_400,
}
_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+([a-z]+?)s?", re.IGNORECASE)


def retention_seconds(properties: Mapping[str, str | None]) -> float:
    """Return how long replaced files stay, as the table says: a week where it does not."""
    found = _INTERVAL.fullmatch((properties.get(_RETENTION) or "").strip())
    unit = _UNITS.get(found[2].lower()) if found else None
    return int(found[1]) * unit if found and unit is not None else _DEFAULT


@dataclass(slots=True)
class Vacuum:
    """Removes the files of one table that are not needed any more.

    Args:
        directory: The table's.
    """

    directory: Path
    _replaced: dict[str, float] = field(default_factory=dict)
    _looked: float = float("-inf")

    def note(self, files: Iterable[DataFile]) -> None:
        """Note files, and vectors, that a commit has just replaced."""
        now = time.time()
        for file in files:
            self._replaced[file.path] = now
            if vector := vector_file(file.vector):
                self._replaced[vector] = now

    def due(self, retention: float) -> bool:
        """Return whether it is time to look; there is no need to more often than once a minute."""
        return time.monotonic() - self._looked >= min(_EVERY, retention)

    def run(self, delta: DeltaTable, active: Iterable[DataFile], retention: float) -> None:
        """Remove what nobody needs.

        Args:
            delta: The table, at its newest version or a little before.
            active: The files it consists of.
            retention: Seconds that what was replaced stays for readers of older versions.
        """
        self._looked = time.monotonic()
        files = list(active)
        spared = {file.path for file in files} | {vector_file(file.vector) for file in files}
        candidates = [name for name in delta.vacuum(dry_run=True, full=True) if name not in spared]
        now = time.time()
        vectors = [name for name in candidates if name.endswith(".bin")]
        lately = set(self._named_since(now - retention)) if vectors else set()
        for name in candidates:
            path = self.directory / name
            if name not in lately and self._is_due(path, name, now, retention):
                path.unlink(missing_ok=True)
        self._replaced = {name: at for name, at in self._replaced.items() if now - at < retention}

    def _is_due(self, path: Path, name: str, now: float, retention: float) -> bool:
        if name in self._replaced:
            return now - self._replaced[name] >= retention
        try:
            age = now - path.stat().st_mtime
        except FileNotFoundError:
            return False
        return age >= (retention if _OURS.fullmatch(name) else max(retention, _STRANGER_SECONDS))

    def _named_since(self, moment: float) -> Iterator[str]:
        """Yield the vectors that commits of the log have named since."""
        for commit in (self.directory / "_delta_log").glob("*.json"):
            try:
                if commit.stat().st_mtime < moment:
                    continue
                lines = lines_of(commit)
            except FileNotFoundError:
                continue
            for line in lines:
                if '"deletionVector"' in line:
                    action = json.loads(line)
                    named = action.get("add") or action.get("remove") or {}
                    if file := vector_file(named.get("deletionVector")):
                        yield file
