"""How many rows of a sink are others than before: one digest per row on disk, taken twice and compared."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.schema import TableSchema
from sinks.base import Sink

__all__ = ["Differences", "compare", "keep"]

_Read = TypeVar("_Read")
_TRIES = 4
_PAUSE_S = 0.5
_GONE = frozenset(("ES_INDEX_MISSING", "DELTA_TABLE_MISSING"))
_NOBODY = "\x00"
"""Begins what stands for the key of a stranger's row that has none; keys spell this character otherwise."""

_ROWS = "CREATE TABLE IF NOT EXISTS rows (t TEXT, k TEXT, d BLOB, PRIMARY KEY (t, k)) WITHOUT ROWID"
_UNREAD = "CREATE TABLE IF NOT EXISTS unread (t TEXT PRIMARY KEY, why TEXT)"


@dataclass(frozen=True, slots=True)
class Differences:
    """How a table at a sink differs from what it was.

    Args:
        sink, table: Which.
        missing: Rows that are there and were not.
        other: Rows whose values are others.
        removed: Rows that were there and are not.
        unread: Why nobody knows; empty when the rows could be compared.
    """

    sink: str
    table: str
    missing: int
    other: int
    removed: int
    unread: str = ""


def keep(path: Path, sink: Sink, schemas: Sequence[TableSchema]) -> dict[str, str]:
    """Write a digest of every row of the tables to ``path``, whole or not at all.

    Returns:
        Table → why, for those whose rows cannot be read: what will differ of them nobody can tell.

    Raises:
        SinkError: When it is not one table's target alone that cannot be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    unread: dict[str, str] = {}
    with closing(sqlite3.connect(draft)) as disk:
        disk.execute(_ROWS)
        disk.execute(_UNREAD)
        for schema in schemas:
            try:
                _patiently(partial(_keep, disk, sink, schema))
            except SinkError as error:
                if error.table is None:
                    raise
                unread[str(schema.table)] = error.message
                disk.execute("DELETE FROM rows WHERE t = ?", (str(schema.table),))
        disk.executemany("INSERT INTO unread VALUES (?, ?)", unread.items())
        disk.commit()
    draft.replace(path)
    return unread


def compare(path: Path, sink_name: str, sink: Sink, schema: TableSchema) -> Differences:
    """Return how a table differs now from what :func:`keep` has seen.

    Raises:
        SinkError: When its rows cannot be read.
    """
    nothing = Differences(sink_name, str(schema.table), 0, 0, 0)
    with closing(sqlite3.connect(path)) as disk:
        disk.execute(_UNREAD)  # an older version has not noted that
        why = disk.execute("SELECT why FROM unread WHERE t = ?", (nothing.table,)).fetchone()
        if why is not None:
            return replace(nothing, unread=why[0])
        return _patiently(partial(_compare, disk, sink_name, sink, schema)) or nothing


def _keep(disk: sqlite3.Connection, sink: Sink, schema: TableSchema) -> None:
    table = str(schema.table)
    disk.execute("DELETE FROM rows WHERE t = ?", (table,))
    rows = (
        (table, _NOBODY + str(number) if stored.key is None else stored.key, _digest(stored.row))
        for number, stored in enumerate(sink.scan(schema))
    )
    disk.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", rows)


def _compare(disk: sqlite3.Connection, sink_name: str, sink: Sink, schema: TableSchema) -> Differences:
    table, missing, other, seen = str(schema.table), 0, 0, 0
    for stored in sink.scan(schema):
        known = disk.execute("SELECT d FROM rows WHERE t = ? AND k = ?", (table, stored.key)).fetchone()
        missing += known is None
        other += known is not None and known[0] != _digest(stored.row)
        seen += known is not None
    (before,) = disk.execute("SELECT count(*) FROM rows WHERE t = ?", (table,)).fetchone()
    return Differences(sink_name, table, missing, other, before - seen)


def _patiently(read: Callable[[], _Read]) -> _Read | None:
    """Return what reading a whole table gives, trying again while it is disturbed; None without a target."""
    for left in reversed(range(_TRIES)):
        try:
            return read()
        except SinkError as error:
            gone = error.code in _GONE
            if not left and gone:
                return None
            if not left or not (gone or isinstance(error, SinkUnavailable)):
                raise
        time.sleep(_PAUSE_S)
    return None


def _digest(row: Mapping[str, Any]) -> bytes:
    return blake2b(repr(sorted(row.items())).encode(), digest_size=12).digest()
