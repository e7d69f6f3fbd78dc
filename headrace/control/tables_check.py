"""What `source tables add` would refuse, and what it would make: asked before anything is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from connectors.base import Capture, Keys, Source, topic_of
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
from headrace.control.spared import Unfit, spared
from headrace.control.topics import topics_of
from headrace.control.verdicts import FIRST_LOAD, standing
from headrace.model.errors import HeadraceError, named
from headrace.model.finding import Finding, Severity
from headrace.model.pasted import command
from headrace.model.schema import TableId, TableSchema

__all__ = ["TakingIn", "check", "leaving_out", "mirrors_of", "refused_by_source", "refused_by_stores"]


@dataclass(frozen=True, slots=True)
class TakingIn:
    """What taking tables in would do.

    Args:
        topics: Those of the tables.
        sinks: Those that would mirror the tables.
        findings: What speaks for or against it; an error among them is what the command would refuse.
        unfit: The tables that would be left out, and why.
    """

    topics: tuple[str, ...]
    sinks: tuple[str, ...]
    findings: tuple[Finding, ...]
    unfit: Unfit = field(default_factory=dict)


def check(
    context: Context,
    name: str,
    tables: Sequence[TableId],
    *,
    keys: Keys | None = None,
    sinks: Sequence[str] = (),
    skip_unfit: bool = False,
) -> TakingIn:
    """Return what :func:`headrace.control.tables.take_in` would do with the same words; changes nothing.

    Rows of a later life that lie in a target are found by the command alone.

    Raises:
        UsageError: When the source or a sink is unknown (``SOURCE_UNKNOWN``, ``SINK_UNKNOWN``), or a sink
            reads from another source (``SINK_OF_OTHER_SOURCE``).
    """
    registry = Registry(context.registry)
    entry, wanted = registry.source(name), list(dict.fromkeys(tables))
    chosen = mirrors_of(registry, entry, sinks)
    begun = {found.topic for found in standing(registry, name) if found.code == FIRST_LOAD}
    known = {table.schema.table: table.topic in begun for table in entry.tables}
    done = [table for table in wanted if not known.get(table, True)]
    new = [table for table in wanted if table not in known]
    told = [_captured(name, table) for table in done] + _whole(context, entry)
    unfit: Unfit = {}
    if new:
        told += _refusal(partial(refuse_unmeant, new, keys or {}))
        found = _refusing(partial(_of_tables, context, entry, new, keys or {}, chosen))
        again = leaving_out(name, wanted, keys or {}, sinks)
        left = spared(found, [t for t in wanted if t not in done], skip=skip_unfit, again=again)
        told, unfit = [*told, *left.findings], left.unfit
        fit, _ = without_unfit(found, new)
        others = _refusing(partial(_of_places, context, registry, entry, fit, keys or {}, chosen))
        told += [one for one in others if one not in found]
    topics = tuple(topic_of(name, table) for table in wanted if table not in unfit)
    return TakingIn(topics, tuple(one.name for one in chosen), tuple(told), unfit)


def mirrors_of(registry: Registry, entry: SourceEntry, sinks: Sequence[str]) -> list[SinkEntry]:
    """Return the sinks that are to mirror further tables: those named, or each that is one of all tables.

    Raises:
        UsageError: As of :func:`~headrace.control.runs.chosen.sinks_of`.
    """
    every = [table.topic for table in entry.tables]
    return [one for one in sinks_of(registry, entry.name, sinks) if sinks or one.follows_all(every)]


def leaving_out(
    name: str, tables: Sequence[TableId], keys: Keys, sinks: Sequence[str], *, wait: bool = True
) -> str:
    """Return the command that takes tables in and leaves out those that are refused for themselves."""
    words = ["headrace", "source", "tables", "add", name, *map(str, tables)]
    words += [word for table, key in keys.items() for word in ("--key", f"{table}={','.join(key)}")]
    words += [word for sink in sinks for word in ("--sink", sink)] + ["--no-wait"] * (not wait)
    return command(*words, "--skip-unfit")


def refused_by_source(
    source: Source, known: Capture, entry: SourceEntry, tables: Sequence[TableId], keys: Keys
) -> list[Finding]:
    """Return what a database says of taking tables in."""
    found = source.preflight(tables, keys, partitions=entry.partitions)
    owners = [finding for finding in source.check_anew(known) if finding.code == "SOURCE_OBJECT_OWNER"]
    return [*(finding for finding in found if finding.code not in OURS_ALREADY), *owners]


def refused_by_stores(
    source: Source,
    found: Sequence[Finding],
    tables: Sequence[TableId],
    keys: Keys,
    sinks: Sequence[SinkEntry],
) -> Iterator[Finding]:
    """Yield the errors that stores would have with tables for themselves; changes nothing.

    What is wrong with a store that is written to already keeps no table from it.

    Args:
        source: The database.
        found: What it says of the tables. Of those that it refuses no store is asked, and of none when it
            refuses all.
        tables: Which tables.
        keys: Keys that stand for the tables' primary keys.
        sinks: Those that are to mirror the tables.

    Raises:
        HeadraceError: When the tables or a sink's secrets cannot be read.
    """
    fit, unfit = without_unfit(found, tables)
    if not fit or any(one.severity is Severity.ERROR and one.table not in unfit for one in found):
        return
    schemas = source.catalogue(fit, {table: key for table, key in keys.items() if table in fit})
    for entry in sinks:
        with opened_sink(entry) as sink:
            told = [one for one in sink.check(schemas) if one.severity is Severity.ERROR and one.table]
        for one in told:
            hint = named(one.hint, source=entry.source, sink=entry.name)
            yield replace(one, message=f"{entry.name}: {one.message}", hint=hint)


def _whole(context: Context, entry: SourceEntry) -> list[Finding]:
    """Return what keeps a source from taking any table in."""
    if entry.gap:
        return [Finding.refused(gap_error(context, entry, entry.gap))]
    return _refusal(partial(refuse_not_streaming, context, entry))


def _of_tables(
    context: Context, entry: SourceEntry, new: Sequence[TableId], keys: Keys, sinks: Sequence[SinkEntry]
) -> Iterator[Finding]:
    source = source_of(context, entry)
    found = refused_by_source(source, capture_of(context, entry), entry, new, keys)
    yield from found
    yield from refused_by_stores(source, found, new, keys, sinks)


def _of_places(
    context: Context,
    registry: Registry,
    entry: SourceEntry,
    fit: Sequence[TableId],
    keys: Keys,
    sinks: Sequence[SinkEntry],
) -> Iterator[Finding]:
    """Yield what keeps tables that are fit from having topics and targets."""
    source, known = source_of(context, entry), capture_of(context, entry)
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
