"""What `sink add` would refuse, and what would go wrong soon: asked before anything is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from headrace.config.source import valid_name
from headrace.control.adding import asked_sink, begun_sink, is_same_sink, sink_exists
from headrace.control.captured import captured_of
from headrace.control.claims import refuse_own, strangers
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SinkEntry, SourceTableEntry
from headrace.control.sink_tables import before_adding, trimmed
from headrace.control.sweeps import marks_to_pass
from headrace.control.targets import refuse_ahead, refuse_shared
from headrace.model.errors import HeadraceError, naming
from headrace.model.finding import Finding, Severity
from headrace.model.pasted import command
from headrace.model.schema import TableId
from sinks import registry as kinds
from sinks.base import Sink
from sinks.unheld import refuse_unknown

__all__ = ["check"]


def check(
    context: Context,
    name: str,
    kind: str,
    *,
    settings: Mapping[str, Any],
    source: str | None = None,
    tables: Sequence[TableId] = (),
) -> list[Finding]:
    """Return what speaks for or against adding the sink; changes nothing.

    Raises:
        UsageError: When the name, a table or a setting is none (``SINK_SETTINGS_INVALID``, …).
    """
    valid_name(name, of="sink")
    kinds.config_model(kind)
    registry = Registry(context.registry)
    begun = begun_sink(registry, name)
    origin = registry.source(source) if source else registry.only_source()
    captured = captured_of(origin, tables)
    refuse_unknown(settings, [table.schema for table in captured])
    # What becomes of changes of columns is none of what may be refused.
    policy = begun.on_schema_change if begun else ""
    entry = asked_sink(name, kind, origin.name, settings, policy)
    if begun is not None and not is_same_sink(begun, entry, [table.topic for table in captured]):
        raise sink_exists(name)
    schemas = [table.schema for table in captured]
    with naming(origin.name, name), closing(kinds.build(kind, name, entry.settings)) as sink:
        found = before_adding(sink.check(schemas))
        if any(finding.severity is Severity.ERROR for finding in found):
            return found
        entry.tables = {table.topic: dict(sink.target(table.schema).facts) for table in captured}
        return [
            *found,
            *_targets(context, registry, entry, sink, captured),
            *_history(context, origin.name, captured),
        ]


def _targets(
    context: Context, registry: Registry, entry: SinkEntry, sink: Sink, captured: Sequence[SourceTableEntry]
) -> Iterator[Finding]:
    schemas = [table.schema for table in captured]
    try:
        refuse_shared(registry, entry)
        refuse_own(context, entry.name, sink, schemas)
    except HeadraceError as error:
        yield Finding.refused(error)
        return
    try:
        refuse_ahead(sink, captured)
    except HeadraceError as error:
        yield Finding.refused(error)
    for table, claim in strangers(context, entry.name, sink, schemas).items():
        yield Finding.error(
            "SINK_TARGET_TAKEN",
            f"Sink {claim.sink} of another installation, {claim.home}, writes to the target of {table}.",
            "Choose another prefix or path; or, when the other is gone for good, add --take-over.",
            table,
        )


def _history(context: Context, source: str, captured: Sequence[SourceTableEntry]) -> Iterator[Finding]:
    passed = marks_to_pass(Registry(context.registry), source, captured)
    lost = trimmed(Kafka(context.kafka_bootstrap), captured, passed)
    for table in captured:
        if table.topic in lost:
            yield Finding.warning(
                "SINK_HISTORY_GONE",
                f"Kafka no longer holds every row of {table.schema.table}: it needs a resnapshot.",
                command("headrace", "resnapshot", source, str(table.schema.table)),
                table.schema.table,
            )
