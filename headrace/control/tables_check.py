"""What `source tables add` would refuse, and what it would make: asked before anything is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from connectors.base import Keys, topic_of
from headrace.control.capture import capture_of, source_of
from headrace.control.context import Context
from headrace.control.fitness import (
    OURS_ALREADY,
    refuse_not_streaming,
    refuse_unmeant,
    refuse_used,
    without_unfit,
)
from headrace.control.gap import gap_error
from headrace.control.kafka import Kafka
from headrace.control.opened import opened_sink
from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.control.runs.chosen import sinks_of
from headrace.control.sink_check import targets_refused
from headrace.control.topics import topics_of
from headrace.control.verdicts import FIRST_LOAD, standing
from headrace.model.errors import HeadraceError
from headrace.model.finding import Finding
from headrace.model.schema import TableId, TableSchema

__all__ = ["TakingIn", "check"]


@dataclass(frozen=True, slots=True)
class TakingIn:
    """What taking tables in would do.

    Args:
        topics: Those of the tables.
        sinks: Those that would mirror the tables.
        findings: What speaks for or against it; an error among them is what the command would refuse.
    """

    topics: tuple[str, ...]
    sinks: tuple[str, ...]
    findings: tuple[Finding, ...]


def check(
    context: Context,
    name: str,
    tables: Sequence[TableId],
    *,
    keys: Keys | None = None,
    sinks: Sequence[str] = (),
) -> TakingIn:
    """Return what :func:`headrace.control.tables.take_in` would do with the same words; changes nothing.

    Rows of a later life that lie in a target are found by the command alone.

    Raises:
        UsageError: When the source or a sink is unknown (``SOURCE_UNKNOWN``, ``SINK_UNKNOWN``), or a sink
            reads from another source (``SINK_OF_OTHER_SOURCE``).
    """
    registry = Registry(context.registry)
    entry, wanted = registry.source(name), list(dict.fromkeys(tables))
    every = {table.topic for table in entry.tables}
    chosen = [one for one in sinks_of(registry, name, sinks) if sinks or every <= one.tables.keys()]
    begun = {found.topic for found in standing(registry, name) if found.code == FIRST_LOAD}
    known = {table.schema.table: table.topic in begun for table in entry.tables}
    done = [table for table in wanted if not known.get(table, True)]
    new = [table for table in wanted if table not in known]
    told = [_captured(name, table) for table in done] + _whole(context, entry)
    if new:
        told += _refusal(partial(refuse_unmeant, new, keys or {}))
        told += _refusing(partial(_of_tables, context, registry, entry, new, keys or {}, chosen))
    return TakingIn(
        tuple(topic_of(name, table) for table in wanted), tuple(one.name for one in chosen), tuple(told)
    )


def _whole(context: Context, entry: SourceEntry) -> list[Finding]:
    """Return what keeps a source from taking any table in."""
    if entry.gap:
        return [Finding.refused(gap_error(context, entry, entry.gap))]
    return _refusal(partial(refuse_not_streaming, context, entry))


def _of_tables(
    context: Context,
    registry: Registry,
    entry: SourceEntry,
    new: Sequence[TableId],
    keys: Keys,
    sinks: Sequence[SinkEntry],
) -> Iterator[Finding]:
    source, known = source_of(context, entry), capture_of(context, entry)
    found = source.preflight(new, keys, partitions=entry.partitions)
    found = [finding for finding in found if finding.code not in OURS_ALREADY]
    found += [finding for finding in source.check_anew(known) if finding.code == "SOURCE_OBJECT_OWNER"]
    yield from found
    fit, _ = without_unfit(found, new)
    added = source.catalogue(fit, {table: key for table, key in keys.items() if table in fit})
    capture = replace(known, tables=(*known.tables, *added))
    kafka, topics = Kafka(context.kafka_bootstrap), topics_of(capture)
    fresh = [topic_of(entry.name, schema.table) for schema in added]
    taken = _refusal(partial(refuse_used, kafka, [topic.name for topic in topics], fresh))
    yield from taken or _refusal(partial(kafka.create, topics, only_ask=True))
    for sink in sinks:
        yield from _refusing(partial(_of_targets, context, registry, sink, added))


def _of_targets(
    context: Context, registry: Registry, entry: SinkEntry, added: Sequence[TableSchema]
) -> Iterator[Finding]:
    with opened_sink(entry) as sink:
        facts = {topic_of(entry.source, schema.table): dict(sink.target(schema).facts) for schema in added}
        more = SinkEntry(name=entry.name, kind=entry.kind, settings=entry.settings, tables=facts)
        yield from targets_refused(context, registry, more, sink, added)


def _captured(name: str, table: TableId) -> Finding:
    return Finding.error(
        "TABLE_CAPTURED",
        f"Source {name} captures {table} already.",
        f"headrace source show {name}",
        table,
    )


def _refusal(attempt: Callable[[], object]) -> list[Finding]:
    """Return as a finding what an attempt that changes nothing is refused for."""
    try:
        attempt()
    except HeadraceError as error:
        return [Finding.refused(error)]
    return []


def _refusing(ask: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """Return what is found, and last what the asking itself is refused for."""
    found: list[Finding] = []
    try:
        for finding in ask():
            found.append(finding)  # noqa: PERF402 - what was found before a refusal stays
    except HeadraceError as error:
        found.append(Finding.refused(error))
    return found
