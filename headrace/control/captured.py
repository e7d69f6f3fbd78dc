"""Which of a source's tables are meant."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.control.registry import SourceEntry, SourceTableEntry
from headrace.model.errors import UsageError
from headrace.model.schema import TableId

__all__ = ["captured_of"]


def captured_of(entry: SourceEntry, wanted: Sequence[TableId]) -> list[SourceTableEntry]:
    """Return the captured tables that are meant, all of the source's when none is named.

    Raises:
        UsageError: When one is not captured (``TABLE_NOT_CAPTURED``).
    """
    known = {table.schema.table: table for table in entry.tables}
    missing = [str(table) for table in wanted if table not in known]
    if missing:
        raise UsageError(
            f"Source {entry.name} does not capture {', '.join(missing)}.",
            code="TABLE_NOT_CAPTURED",
            hint=f"Captured: {', '.join(map(str, known))}.",
        )
    return [known[table] for table in wanted] if wanted else list(known.values())
