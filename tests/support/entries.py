"""The registry in tests: a source as it keeps it, for those that need no servers; and its loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.control.registry import SourceEntry, SourceTableEntry
from headrace.model.schema import TableSchema

__all__ = ["lose_registry", "source_entry"]


def source_entry(name: str, schemas: Sequence[TableSchema], *, epoch: int = 0, **changes: Any) -> SourceEntry:
    """Return a source with these tables; ``changes`` are columns of its entry."""
    tables = [
        SourceTableEntry(
            topic=f"{name}.{schema.table}", place=place, topic_id="x", epoch=epoch, table=schema.as_dict()
        )
        for place, schema in enumerate(schemas)
    ]
    known: dict[str, Any] = {
        "kind": "postgres",
        "address": "postgresql://h/d",
        "placeholder": "p",
        "settings": {},
        "system": None,
        "created_ms": 1,
        "loaded_ms": None,
        "gap": None,
    }
    return SourceEntry(name=name, tables=tables, **{**known, **changes})


def lose_registry(path: Path) -> None:
    """Remove the registry's files; the log first, so that it is never taken for that of a new registry."""
    for file in sorted(path.parent.glob(f"{path.name}*"), reverse=True):
        file.unlink(missing_ok=True)
