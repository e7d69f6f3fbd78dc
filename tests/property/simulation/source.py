"""The model database: one table, transactions that are open side by side, changes told at their commit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from headrace.model.schema import Column, LogicalType, TableId, TableSchema

__all__ = ["SCHEMA", "TABLE", "Database", "Event", "Row"]

TABLE = TableId("public", "t")
SCHEMA = TableSchema(
    TABLE,
    (Column("id", LogicalType.INT32), Column("a", LogicalType.TEXT), Column("big", LogicalType.TEXT)),
    ("id",),
)

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Event:
    """One change as the write-ahead log has it.

    Args:
        op: As Debezium calls it.
        key: Which row; 0 for a truncate.
        row: The new row, if there is one.
        lsn: Where it was written, which is before its commit.
        whole: Whether the large value was written, so that it is told.
    """

    op: str
    key: int
    row: Row | None
    lsn: int
    whole: bool = True


@dataclass
class _Transaction:
    changed: dict[int, Row | None] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    emptied: bool = False


class Database:
    """What a session wrote is seen by others when it commits; until then they wait for those rows.

    Who waits does so until the other has committed. Session 0 commits each statement.

    Attributes:
        rows: What is committed.
    """

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self._open: dict[int, _Transaction] = {}
        self._lsn = 0

    @property
    def lsn(self) -> int:
        """Where the log ends."""
        return self._lsn

    def put(self, session: int, keys: Collection[int], a: str, *, touch: bool = True) -> list[Event]:
        """Insert or update rows by one statement; return what became visible to all by it.

        Many rows share one LSN, as those of a COPY do. An update that does not ``touch`` the large value
        does not tell it.
        """
        before = self._waited(session, keys)
        lsn = self._next()
        mine, seen = self._of(session), self._seen(session)
        for key in keys:
            known = seen.get(key)
            whole = touch or known is None
            big = f"big{lsn}" if known is None or touch else known["big"]
            row: Row = {"id": key, "a": a, "big": big}
            mine.changed[key] = row
            mine.events.append(Event("c" if known is None else "u", key, row, lsn, whole))
        return before + self._ended(session)

    def delete(self, session: int, key: int) -> list[Event]:
        """Delete a row."""
        before = self._waited(session, [key])
        if key not in self._seen(session):
            return before
        mine = self._of(session)
        mine.changed[key] = None
        mine.events.append(Event("d", key, None, self._next()))
        return before + self._ended(session)

    def move(self, session: int, old: int, new: int, a: str, *, touch: bool) -> list[Event]:
        """Change a row's key: a delete and a create with one LSN, side by side."""
        before = self._waited(session, [old, new])
        seen = self._seen(session)
        if old not in seen or new in seen:
            return before
        lsn, mine = self._next(), self._of(session)
        row: Row = {"id": new, "a": a, "big": f"big{lsn}" if touch else seen[old]["big"]}
        mine.changed |= {old: None, new: row}
        mine.events += [Event("d", old, None, lsn), Event("c", new, row, lsn, touch)]
        return before + self._ended(session)

    def truncate(self, session: int) -> list[Event]:
        """Remove every row, when nobody else is at the table."""
        before = self._waited(session, None)
        mine = self._of(session)
        mine.changed |= dict.fromkeys(self._seen(session))
        mine.emptied = True
        mine.events.append(Event("t", 0, None, self._next()))
        return before + self._ended(session)

    def commit(self, session: int) -> list[Event]:
        """End a transaction; return its changes, in their order and with nothing of others between."""
        mine = self._open.pop(session, _Transaction())
        for key, row in mine.changed.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        return mine.events

    def roll_back(self, session: int) -> None:
        """End a transaction as if it had never been."""
        self._open.pop(session, None)

    def _of(self, session: int) -> _Transaction:
        return self._open.setdefault(session, _Transaction())

    def _ended(self, session: int) -> list[Event]:
        return self.commit(session) if session == 0 else []

    def _seen(self, session: int) -> dict[int, Row]:
        changed = self._open.get(session, _Transaction()).changed
        return {key: row for key, row in {**self.rows, **changed}.items() if row is not None}

    def _waited(self, session: int, keys: Collection[int] | None) -> list[Event]:
        """Return what became visible while a statement waited for rows, or for the table."""
        told: list[Event] = []
        for other, theirs in list(self._open.items()):
            wanted = keys is None or theirs.emptied or not theirs.changed.keys().isdisjoint(keys)
            if other != session and wanted:
                told += self.commit(other)
        return told

    def _next(self) -> int:
        self._lsn += 1
        return self._lsn
