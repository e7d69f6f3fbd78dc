"""Rows that were seen in the database: a store has to hold the same values once they are old."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from headrace.demo.compare import Expected, compare
from headrace.demo.original import Original
from headrace.demo.stores.base import Store
from headrace.model.schema import TableSchema
from headrace.model.values import key_of

__all__ = ["Samples"]

_TAKEN = 8
"""So many rows of a table are taken, and asked for, at a time."""
_MOST = 400


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    schema: TableSchema
    row: Mapping[str, Any]
    writer: str
    """The transaction that has written the row; a row with the same one was not changed since."""


class Samples:
    """Some rows of each table.

    Args:
        dsn: The database.
        tables: Those from which rows are taken.
    """

    def __init__(self, dsn: str, tables: Sequence[TableSchema]) -> None:
        self._dsn = dsn
        self._tables = tables
        self._taken: deque[_Sample] = deque(maxlen=_MOST)

    def take(self) -> None:
        """Remember some rows of one table.

        Raises:
            psycopg.Error: When the database does not answer.
        """
        schema = random.choice(self._tables)
        with Original.open(self._dsn) as original:
            rows = original.sampled(schema, _TAKEN)
        now = time.monotonic()
        self._taken.extend(_Sample(now, schema, row, writer) for writer, row in rows)

    def forget(self) -> None:
        """Forget all: the database went back."""
        self._taken.clear()

    def wrong(self, store: Store, schema: TableSchema, since: float) -> list[str] | None:
        """Return what a store holds otherwise of rows that are as they were at ``since``.

        None when there is no such row.
        """
        old = [one for one in self._taken if one.schema is schema and one.at < since]
        asked = self._unchanged(random.sample(old, min(_TAKEN, len(old))))
        if not asked:
            return None
        keys = {key_of(schema, one.row): one for one in asked}
        found = list(store.some(schema, list(keys)))
        # What was changed or deleted between the two questions is not wrong.
        rows = [one.row for one in self._unchanged(list(keys.values()))]
        told = compare(store.name, Expected(schema, rows), found, lambda key: store.address(schema, key))
        missing = [f"row {key} is missing" for key in told.missing]
        return missing + [
            f"row {key} has another {', '.join(names)}" for key, names in told.different.items()
        ]

    def _unchanged(self, samples: Sequence[_Sample]) -> list[_Sample]:
        """Return those whose row is still the very same."""
        if not samples:
            return []
        schema = samples[0].schema
        query = sql.SQL("SELECT xmin::text FROM {} WHERE ({}) = ({})").format(
            sql.Identifier(schema.table.schema, schema.table.name),
            sql.SQL(", ").join(map(sql.Identifier, schema.key)),
            sql.SQL(", ").join(sql.Placeholder() * len(schema.key)),
        )
        with psycopg.connect(self._dsn, autocommit=True, connect_timeout=2) as connection:
            found = [
                connection.execute(query, [one.row[name] for name in schema.key]).fetchone()
                for one in samples
            ]
        return [
            one for one, row in zip(samples, found, strict=True) if row is not None and row[0] == one.writer
        ]
