"""Tables that a source no longer captures: taken out of it, of its sinks and of the connector.

It is the way back from ``take_in``, and what is left to do with a table that was dropped in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import delete, select

from headrace.control.alone import alone
from headrace.control.capture import capture_of, source_of
from headrace.control.claims import strangers
from headrace.control.columns import there
from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry, ResnapshotEntry, VerdictEntry
from headrace.control.fitness import refuse_not_streaming
from headrace.control.kafka import Kafka
from headrace.control.newcomers import listed, named
from headrace.control.opened import opened_sink, tables_of
from headrace.control.pipelines import rewrite, spec_path, withheld
from headrace.control.registry import Registry, SinkEntry, SourceEntry, SourceTableEntry
from headrace.control.runs.repository import OPEN, Phase, all_of, topics_of
from headrace.control.tables import tell_connector
from headrace.control.watcher import between_looks
from headrace.model.errors import SourceError, UsageError
from headrace.model.schema import TableId

__all__ = ["chosen_of", "take_out"]

Say = Callable[[str], None]


def take_out(
    context: Context,
    name: str,
    tables: Sequence[TableId],
    *,
    purge: bool = False,
    say: Say = lambda _: None,
) -> None:
    """Capture tables no longer. Their targets stay as they are; with ``purge`` our own go.

    A command that was broken off is finished by the same command.

    Args:
        context: The installation.
        name: The source.
        tables: Which tables. They are declined: nobody is asked about them any more.
        purge: Remove the tables' targets and all data in them.
        say: Told what happens.

    Raises:
        UsageError: When a table is not captured (``TABLE_NOT_CAPTURED``), a source or a sink would have none
            left (``TABLE_LAST``), or a run is at one of them (``RESNAPSHOT_TABLE_BUSY``).
        SourceError: When the connector does not stream (``SOURCE_NOT_STREAMING``). One of a source with a gap
            need not: the table may be what keeps it from being recovered.
        SinkError: When a store does not remove its target. The table is still captured then.
    """
    registry = Registry(context.registry)
    with alone(context, name, "a command that takes tables out", say):
        entry = registry.source(name)
        gone = chosen_of(registry, entry, tables)
        topics = {table.topic for table in gone}
        sinks = [sink for sink in registry.sinks(name) if topics & sink.tables.keys()]
        told = True
        try:
            refuse_not_streaming(context, entry)
        except SourceError:
            if not entry.gap:
                raise
            told = False
            say("nothing streams: the recovery will leave the tables out of publication and connector")
        else:
            _tell_source(context, entry, tables, say)
        there = [sink.name for sink in sinks if spec_path(context, sink.name).exists()]
        with withheld(context, *there, doing="a command that takes tables out", say=say):
            for sink in sinks:
                _release(context, sink, [table for table in gone if table.topic in sink.tables], purge, say)
            Kafka(context.kafka_bootstrap).delete(sorted(topics))
            with between_looks(context, name):
                _unregister(registry, name, topics, tables, told=told)
    registry.note(f"source {name}", "tables taken out", tables=[str(t) for t in tables], purged=purge)


def _tell_source(context: Context, entry: SourceEntry, gone: Sequence[TableId], say: Say) -> None:
    """Take the tables out of publication and connector."""
    source, capture = source_of(context, entry), capture_of(context, entry)
    left = [schema for schema in capture.tables if schema.table not in gone]
    declared = {schema.table: schema.key for schema in left if schema.declared}
    present = {schema.table for schema in there(context, entry, [s.table for s in left], declared)}
    capture = replace(capture, tables=tuple(schema for schema in left if schema.table in present))
    source.publish(capture)
    tell_connector(context, source, capture, say)


def chosen_of(registry: Registry, entry: SourceEntry, tables: Sequence[TableId]) -> list[SourceTableEntry]:
    """Return the tables that are to be taken out.

    Raises:
        UsageError: As :func:`take_out` does, before it changes anything.
    """
    gone = _chosen(entry, tables)
    topics = {table.topic for table in gone}
    sinks = [sink for sink in registry.sinks(entry.name) if topics & sink.tables.keys()]
    _refuse_last(registry, entry, sinks, topics)
    _refuse_busy(registry, entry.name, topics)
    return gone


def _chosen(entry: SourceEntry, tables: Sequence[TableId]) -> list[SourceTableEntry]:
    known = {table.schema.table: table for table in entry.tables}
    if missing := [str(table) for table in tables if table not in known]:
        raise UsageError(
            f"Source {entry.name} does not capture {', '.join(missing)}.",
            code="TABLE_NOT_CAPTURED",
            hint=f"Captured: {', '.join(map(str, known))}.",
        )
    return [known[table] for table in dict.fromkeys(tables)]


def _without(plan: Mapping[str, Any], topics: set[str]) -> dict[str, Any]:
    """Return what a run's plan says of the topics that are left."""
    left = dict(plan)
    for key, told in plan.items():
        if isinstance(told, dict):
            left[key] = {topic: one for topic, one in told.items() if topic not in topics}
        if key in ("topics", "done", "failed"):
            left[key] = [topic for topic in told if topic not in topics]
    left["shadows"] = {
        sink: [topic for topic in mine if topic not in topics]
        for sink, mine in plan.get("shadows", {}).items()
    }
    left["swept"] = {
        sink: {topic: told for topic, told in mine.items() if topic not in topics}
        for sink, mine in plan.get("swept", {}).items()
    }
    return left


def _refuse_last(
    registry: Registry, entry: SourceEntry, sinks: Collection[SinkEntry], topics: Collection[str]
) -> None:
    if len(topics) == len(entry.tables):
        raise UsageError(
            f"Source {entry.name} would capture no table.",
            code="TABLE_LAST",
            hint=f"headrace source show {entry.name}",
        )
    for sink in sinks:
        if {table.topic for table in tables_of(registry, sink)} <= set(topics):
            raise UsageError(
                f"Sink {sink.name} would mirror no table.",
                code="TABLE_LAST",
                hint=f"headrace sink show {sink.name}",
            )


def _refuse_busy(registry: Registry, name: str, topics: set[str]) -> None:
    for run in all_of(registry, name):
        if run.phase in {phase.value for phase in OPEN} and topics_of(run) & topics:
            # One that rests goes on when somebody says so; who waits for it waits for a person.
            rests = run.phase == Phase.UNFINISHED.value or run.wanted == "pause"
            raise UsageError(
                f"Run {run.id} is at one of the tables: {run.phase}.",
                code="RESNAPSHOT_TABLE_BUSY",
                hint=f"headrace resnapshot {'abort' if rests else 'wait'} {run.id}",
            )


def _release(
    context: Context, entry: SinkEntry, tables: Sequence[SourceTableEntry], purge: bool, say: Say
) -> None:
    """Have a sink mirror tables no longer."""
    topics = [table.topic for table in tables]
    say(f"{entry.name}: letting {len(tables)} tables go")
    if purge:
        with opened_sink(entry) as sink:
            taken = strangers(context, entry.name, sink, [table.schema for table in tables])
            mine = [table for table in tables if table.schema.table not in taken]
            for table in mine:
                sink.drop(table.schema)
            sink.forget([table.topic for table in mine])
    if spec_path(context, entry.name).exists():
        rewrite(
            context,
            entry.name,
            lambda spec: {
                "tables": tuple(table for table in spec.tables if table.topic not in topics),
                "swept": {topic: told for topic, told in spec.swept.items() if topic not in topics},
            },
        )


def _unregister(
    registry: Registry, name: str, topics: set[str], tables: Collection[TableId], *, told: bool
) -> None:
    with registry.begin() as session:
        begun = session.get(RecoveryEntry, name)
        if begun is not None and not told and begun.phase != "stopping":
            begun.phase = "beginning"  # only then are publication and connector told which tables there are
        source = session.get_one(SourceEntry, name)
        for table in [table for table in source.tables if table.topic in topics]:
            source.tables.remove(table)
        for sink in session.scalars(select(SinkEntry).where(SinkEntry.source == name)):
            sink.tables = {topic: facts for topic, facts in sink.tables.items() if topic not in topics}
            sink.left_out = {t: why for t, why in (sink.left_out or {}).items() if t not in topics} or None
            sink.incomplete = {t: first for t, first in sink.incomplete.items() if t not in topics}
            sink.incomplete_ms = {t: at for t, at in sink.incomplete_ms.items() if t not in topics}
        session.execute(
            delete(VerdictEntry).where(VerdictEntry.source == name, VerdictEntry.topic.in_(topics))
        )
        for run in session.scalars(select(ResnapshotEntry).where(ResnapshotEntry.source == name)):
            # What was noted of a topic that is gone means nothing in one of the same name.
            run.plan = _without(run.plan, topics)
        source.left_out = listed(named(source.left_out) | set(tables))
