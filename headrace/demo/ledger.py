"""What the workload did, counted when it is committed and not before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from random import Random
from typing import Any

import psycopg

__all__ = ["Tally", "Visit"]


@dataclass(slots=True)
class Tally:
    """Counts of committed work.

    Args:
        inserts, updates, deletes: Rows changed, cascades included.
        key_changes: Rows whose primary key changed.
        toast_untouched: Among the updates, those that left alone a value stored out of line.
        transactions: Committed transactions that changed something.
        largest: Rows changed by the largest of them.
        rolled_back: Transactions, or parts of them, that were taken back on purpose.
        conflicts: Transactions that Postgres refused because of another one (deadlock, vanished parent).
    """

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    key_changes: int = 0
    toast_untouched: int = 0
    transactions: int = 0
    largest: int = 0
    rolled_back: int = 0
    conflicts: int = 0

    @property
    def changes(self) -> int:
        """Return how many row changes were committed."""
        return self.inserts + self.updates + self.deletes + self.key_changes

    def add(self, other: Tally) -> None:
        """Add the counts of ``other``."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, max(mine, theirs) if field.name == "largest" else mine + theirs)

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name, with their sum as ``changes``."""
        return {**asdict(self), "changes": self.changes}


class Visit:
    """One transaction of one visitor: runs statements and counts the rows they change.

    Args:
        connection: Within an open transaction.
        rng: The visitor's own.
    """

    def __init__(self, connection: psycopg.Connection[Any], rng: Random) -> None:
        self.connection = connection
        self.rng = rng
        self.tally = Tally()

    def ask(self, query: str, *arguments: Any) -> Any:
        """Return the first column of the first row, or None."""
        row = self.connection.execute(query.encode(), arguments).fetchone()
        return None if row is None else row[0]

    def insert(self, query: str, *arguments: Any) -> Any:
        """Insert; return the first returned column, if the statement returns one."""
        cursor = self.connection.execute(query.encode(), arguments)
        self.tally.inserts += cursor.rowcount
        row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]

    def insert_many(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert several rows with one prepared statement."""
        with self.connection.cursor() as cursor:
            cursor.executemany(query.encode(), rows)
            self.tally.inserts += cursor.rowcount

    def update(self, query: str, *arguments: Any) -> int:
        """Update; return how many rows matched."""
        count = self.connection.execute(query.encode(), arguments).rowcount
        self.tally.updates += count
        return count

    def rekey(self, query: str, *arguments: Any) -> int:
        """Change primary keys; return how many."""
        count = self.connection.execute(query.encode(), arguments).rowcount
        self.tally.key_changes += count
        return count

    def delete(self, query: str, *arguments: Any) -> int:
        """Delete; return how many rows matched."""
        count = self.connection.execute(query.encode(), arguments).rowcount
        self.tally.deletes += count
        return count
