"""What `sink add` would refuse, and what would go wrong soon: asked before anything is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from headrace.config.pipeline import SchemaPolicy
from headrace.config.source import valid_name
from headrace.control.adding import asked_of, begun_sink, is_same_sink, sink_exists
from headrace.control.claims import refuse_own, strangers
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SinkEntry, SourceTableEntry
from headrace.control.sink_tables import asked, leaving_out, trimmed
from headrace.control.spared import Unfit
from headrace.control.sweeps import marks_to_pass
from headrace.control.targets import refuse_ahead, refuse_shared
from headrace.model.claim import Claim
from headrace.model.errors import HeadraceError, naming
from headrace.model.finding import Finding, Severity
from headrace.model.pasted import command
from headrace.model.schema import TableId, TableSchema
from sinks import registry as kinds
from sinks.base import Sink

__all__ = ["check", "targets_refused"]


def check(
    context: Context,
    name: str,
    kind: str,
    *,
    settings: Mapping[str, Any],
    source: str | None = None,
    tables: Sequence[TableId] = (),
    take_over: bool = False,
    on_schema_change: SchemaPolicy = SchemaPolicy.LENIENT,
    skip_unfit: bool = False,
    skipped: Callable[[Unfit], None] = lambda _: None,
) -> list[Finding]:
    """Return what speaks for or against adding the sink with the same words; changes nothing.

    With ``take_over`` it is a warning, and no error, that another installation writes to a target. With
    ``skip_unfit`` it is one that the store refuses a table for itself, unless it would refuse all;
    ``skipped`` is told which tables would be left out, and why.

    Raises:
        UsageError: When the name, a table or a setting is none (``SINK_SETTINGS_INVALID``, …), or the source
            is being removed (``SOURCE_GOING``).
    """
    valid_name(name, of="sink")
    kinds.config_model(kind)
    registry = Registry(context.registry)
    begun = begun_sink(registry, name)
    origin, captured, entry = asked_of(
        registry,
        name,
        kind,
        settings=settings,
        source=source,
        tables=tables,
        on_schema_change=on_schema_change,
    )
    if begun is not None and not is_same_sink(begun, entry, [table.topic for table in captured], skip_unfit):
        raise sink_exists(name)
    again = leaving_out(
        name,
        kind,
        settings,
        source=source,
        tables=tables,
        take_over=take_over,
        on_schema_change=on_schema_change,
    )
    with naming(origin.name, name), closing(kinds.build(kind, name, entry.settings)) as sink:
        captured, left = asked(sink, entry, captured, skip=skip_unfit, again=again)
        skipped(left.unfit)
        found = list(left.findings)
        if any(finding.severity is Severity.ERROR for finding in found):
            return found
        schemas = [table.schema for table in captured]
        entry.tables = {table.topic: dict(sink.target(table.schema).facts) for table in captured}
        taken = _ours(context, registry, entry, sink, schemas) or [
            *_ahead(sink, captured, take_over=take_over),
            *_others(context, name, sink, schemas, take_over=take_over),
        ]
        return [*found, *taken, *_history(context, origin.name, captured)]


def targets_refused(
    context: Context, registry: Registry, entry: SinkEntry, sink: Sink, schemas: Sequence[TableSchema]
) -> list[Finding]:
    """Return who else writes to the entry's targets, in this installation or in another one."""
    return _ours(context, registry, entry, sink, schemas) or _others(context, entry.name, sink, schemas)


def _ours(
    context: Context, registry: Registry, entry: SinkEntry, sink: Sink, schemas: Sequence[TableSchema]
) -> list[Finding]:
    try:
        refuse_shared(registry, entry)
        refuse_own(context, entry.name, sink, schemas)
    except HeadraceError as error:
        return [Finding.refused(error)]
    return []


def _others(
    context: Context, name: str, sink: Sink, schemas: Sequence[TableSchema], *, take_over: bool = False
) -> list[Finding]:
    claims = strangers(context, name, sink, schemas)
    return [_taken(table, claim, take_over=take_over) for table, claim in claims.items()]


def _taken(table: TableId, claim: Claim, *, take_over: bool) -> Finding:
    who = f"Sink {claim.sink} of another installation, {claim.home}, writes to the target of {table}"
    if take_over:
        return Finding.warning("SINK_TARGET_TAKEN", f"{who}: it will be stopped.", table=table)
    hint = "Choose another prefix or path; or, when the other is gone for good, add --take-over."
    return Finding.error("SINK_TARGET_TAKEN", f"{who}.", hint, table)


def _ahead(sink: Sink, captured: Sequence[SourceTableEntry], *, take_over: bool) -> Iterator[Finding]:
    try:
        refuse_ahead(sink, captured)
    except HeadraceError as error:
        if take_over:
            yield Finding.warning(error.code, f"{error.message} They will be removed.")
        else:
            yield Finding.refused(error)


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
