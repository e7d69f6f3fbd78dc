"""What is known of a source, for programs and for tables."""

from __future__ import annotations

from typing import Any

from headrace.control import lag
from headrace.control.capture import settings_of
from headrace.control.context import Context
from headrace.control.lag import LagReport
from headrace.control.registry import SourceEntry

__all__ = ["facts_of"]


def facts_of(context: Context, entry: SourceEntry, report: LagReport | None = None) -> dict[str, Any]:
    """Return a source JSON-ready: its state, its tables, their keys and topics.

    Args:
        context: The installation.
        entry: The source.
        report: What a look has told that was taken already; without one it is taken now.
    """
    told = {found.source: found for found in (report or lag.measure(context)).sources}
    seen = told.get(entry.name) or lag.coming(entry.name)
    without = settings_of(entry).columns_left_out
    return {
        "source": entry.name,
        "kind": entry.kind,
        "address": entry.address,
        "state": seen.state,
        "reason": seen.reason,
        "remedy": seen.remedy,
        "slot_lag_bytes": seen.slot_lag_bytes,
        "heartbeat_seconds": seen.heartbeat_seconds,
        "created_ms": entry.created_ms,
        "loaded_ms": entry.loaded_ms,
        "tables": {
            str(table.schema.table): {
                "topic": table.topic,
                "epoch": table.epoch,
                "key": list(table.schema.key),
                "key_declared": table.schema.declared,
                "left_out": without.get(table.schema.table, []),
                "columns": [
                    {"name": c.name, "type": c.type.value, "dimensions": c.dimensions, "native": c.native}
                    for c in table.schema.columns
                ],
            }
            for table in entry.tables
        },
    }
