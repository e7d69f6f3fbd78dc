"""The whole content of a table that seldom changes, and since when it is so."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.demo.compare import Expected
from headrace.demo.original import Original
from headrace.model.schema import TableSchema

__all__ = ["Content", "Contents"]


@dataclass(frozen=True, slots=True)
class Content:
    """What a table held.

    Args:
        since: When it was first seen so, monotonic.
        schema: Its columns then.
        rows: Its rows.
    """

    since: float
    schema: TableSchema
    rows: tuple[Mapping[str, Any], ...]

    @property
    def expected(self) -> Expected:
        """Return it as something to compare a store with."""
        return Expected(self.schema, self.rows)


class Contents:
    """Reads one table again and again.

    Args:
        dsn: The database.
        table: The table's name.
    """

    def __init__(self, dsn: str, table: str) -> None:
        self._dsn = dsn
        self._table = table
        self._last: Content | None = None

    def look(self) -> Content:
        """Return what the table holds now, and since when it was never seen otherwise."""
        with Original.open(self._dsn) as original:
            schema = next(one for one in original.tables() if one.table.name == self._table)
            rows = tuple(sorted(original.rows(schema), key=lambda row: str(row["id"])))
        # Seen after it was read: whoever asks how long it has been so is not told too much.
        now = time.monotonic()
        last = self._last
        if last is None or (last.schema, last.rows) != (schema, rows):
            last = self._last = Content(now, schema, rows)
        return last
