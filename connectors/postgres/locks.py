"""Whether reading the tables leaves the locks of the server to others.

Who reads a table holds a lock on it, on each of its partitions and on each index of these. The first snapshot
is one transaction, which holds them all until it has read the last table. A run holds those of one table for
each chunk, for it reads a partitioned table by its root. All sessions share one room for locks: when it is
full, the application's statements fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from connectors.postgres.session import Session, rows
from headrace.model.finding import Finding
from headrace.model.schema import TableId

__all__ = ["Locks", "read_locks"]

_WARNED, _REFUSED = 4, 2
"""Parts of the room: a fourth is told, a half is refused."""
_STEP = 64

_HELD = """
WITH RECURSIVE tree AS (
    SELECT c.oid AS root, c.oid AS relid, n.nspname AS schema, c.relname AS name
    FROM unnest(%s::text[], %s::text[]) AS wanted(schema, name)
    JOIN pg_namespace n ON n.nspname = wanted.schema
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
  UNION
    SELECT tree.root, h.inhrelid, tree.schema, tree.name
    FROM tree JOIN pg_inherits h ON h.inhparent = tree.relid WHERE NOT h.inhdetachpending
)
SELECT tree.schema, tree.name, count(DISTINCT tree.relid) + count(i.indexrelid) AS held
FROM tree LEFT JOIN pg_index i ON i.indrelid = tree.relid
GROUP BY tree.root, tree.schema, tree.name
"""
_ROOM = """
SELECT current_setting('max_locks_per_transaction')::int AS each,
       current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int AS sessions
"""


@dataclass(frozen=True, slots=True)
class Locks:
    """The locks that reading takes, and those that there are.

    Args:
        held: By a statement that reads all of the table.
        sessions: For how many the server has room.
        each: So many locks it has for each of them.
    """

    held: Mapping[TableId, int]
    sessions: int
    each: int

    def refused(self) -> dict[TableId, Finding]:
        """Return the tables that nobody should read at once, whoever it is; each with an error."""
        return {
            table: Finding.error(
                "SOURCE_LOCKS",
                f"{table}: to read it takes {held} locks, on its partitions and indexes; {self._shared}.",
                self._raised,
                table,
            )
            for table, held in self.held.items()
            if held * _REFUSED >= self._room
        }

    def crowds(self, tables: Collection[TableId]) -> bool:
        """Return whether one transaction that reads the tables takes a large part of the locks."""
        return self._sum(tables) * _WARNED >= self._room

    def check(self, at_once: Collection[TableId], by_run: Collection[TableId]) -> Iterator[Finding]:
        """Yield what is to be said of loading tables.

        Args:
            at_once: Those that the first snapshot reads.
            by_run: Those that runs read, one after the other.
        """
        first = self._sum(at_once)
        most = max([first, *(self.held.get(table, 0) for table in by_run)])
        if most * _WARNED < self._room:
            return
        who = "the first snapshot holds" if most == first else "a run takes"
        until = " until all tables are read" if most == first else " for each part of a table"
        make = Finding.error if most * _REFUSED >= self._room else Finding.warning
        what = "a table, each of its partitions and each index takes one"
        message = f"To load the tables {who} {most} locks{until}: {what}; {self._shared}."
        yield make("SOURCE_LOCKS", message, self._raised)

    def _sum(self, tables: Collection[TableId]) -> int:
        return sum(self.held.get(table, 0) for table in tables)

    @property
    def _room(self) -> int:
        return self.each * self.sessions

    @property
    def _shared(self) -> str:
        return f"all sessions share about {self._room}, and when none is left, everybody's statements fail"

    @property
    def _raised(self) -> str:
        """Return the statement after which all tables together take less than what is told."""
        each = (self._sum(self.held) * _WARNED // self.sessions // _STEP + 1) * _STEP
        return f"ALTER SYSTEM SET max_locks_per_transaction = {each};  -- then restart Postgres"


def read_locks(connection: Session, tables: Collection[TableId]) -> Locks:
    """Return the locks that reading the tables takes; asked of the catalogue, so none of them is taken."""
    found = rows(connection, _HELD, [t.schema for t in tables], [t.name for t in tables])
    (room,) = rows(connection, _ROOM)
    held = {TableId(row["schema"], row["name"]): int(row["held"]) for row in found}
    return Locks(held, room["sessions"], room["each"])
