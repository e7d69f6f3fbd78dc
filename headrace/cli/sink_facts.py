"""What is known of sinks, for programs and for tables; all that one command tells is of one look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.config.secrets import mask_settings
from headrace.control import lag
from headrace.control.context import Context
from headrace.control.lag import SinkLag, TableLag
from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.control.spared import left_out_of, reasons
from headrace.control.undone import begun_sinks, named_sink

__all__ = ["facts_of", "facts_of_all"]


def facts_of(context: Context, name: str) -> dict[str, Any]:
    """Return a sink JSON-ready: its state and, for every table, where it lives and how far it is.

    Raises:
        UsageError: When there is none, or none any more (``SINK_UNKNOWN``).
    """
    named_sink(Registry(context.registry), name)
    for facts in facts_of_all(context):
        if facts["sink"] == name:
            return facts
    return facts_of(context, name)  # it went while it was looked at, and may be there again


def facts_of_all(context: Context) -> list[dict[str, Any]]:
    """Return every sink that `lag` tells, JSON-ready; of one that is in no registry what `lag` knows."""
    registry = Registry(context.registry)
    entries = {entry.name: entry for entry in registry.sinks()} | begun_sinks(registry)
    sources = {entry.name: entry for entry in registry.sources()}
    report = lag.measure(context)
    tables = {(table.sink, table.table): table for table in report.tables}
    return [_facts(seen, entries.get(seen.sink), sources.get(seen.source), tables) for seen in report.sinks]


def _facts(
    seen: SinkLag,
    entry: SinkEntry | None,
    source: SourceEntry | None,
    tables: Mapping[tuple[str, str], TableLag],
) -> dict[str, Any]:
    held = entry.tables if entry is not None else {}
    captured = source.tables if source is not None else []
    return {
        "sink": seen.sink,
        "kind": seen.kind,
        "source": seen.source,
        "state": seen.state,
        "reason": seen.reason,
        "remedy": seen.remedy,
        "settings": mask_settings(entry.settings) if entry is not None else {},
        "on_schema_change": entry.on_schema_change if entry is not None else None,
        "latency_ms": seen.latency_ms,
        "first_row_ms": seen.first_row_ms,
        "created_ms": entry.created_ms if entry is not None else None,
        "left_out": reasons(left_out_of(entry, captured)) if entry is not None else {},
        "tables": {
            name: {
                "target": held[table.topic],
                "topic": table.topic,
                "key": list(table.schema.key),
                "state": told.state,
                "reason": told.reason,
                "remedy": told.remedy,
                "lag_records": told.lag_records,
                "freshness_seconds": told.freshness_seconds,
                "applied": told.applied,
                "stale": told.stale,
                "rejected": told.rejected,
                "behind": told.behind,
            }
            for table in captured
            for name in [str(table.schema.table)]
            for told in [tables.get((seen.sink, name))]
            if told is not None and table.topic in held
        },
    }
