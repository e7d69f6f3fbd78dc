"""Tables that have come to the schemas of a source since it was added, until somebody decides about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.control.entries import SourceEntry, WatchEntry
from headrace.control.registry import Registry
from headrace.model.schema import TableId

__all__ = ["listed", "named", "newcomers"]


def listed(tables: Iterable[TableId]) -> dict[str, Any]:
    """Return tables as the registry keeps them."""
    return {"tables": sorted([table.schema, table.name] for table in tables)}


def named(kept: Mapping[str, Any] | None) -> set[TableId]:
    """Return the tables that :func:`listed` has written."""
    return {TableId(*each) for each in (kept or {}).get("tables", ())}


def newcomers(registry: Registry, entry: SourceEntry) -> list[TableId]:
    """Return the tables that the last look saw, that are not captured and that nobody has declined."""
    with registry.reading() as session:
        seen = session.get(WatchEntry, entry.name)
    if seen is None or entry.left_out is None:
        return []
    captured = {table.schema.table for table in entry.tables}
    return sorted(named(seen.others) - named(entry.left_out) - captured, key=str)
