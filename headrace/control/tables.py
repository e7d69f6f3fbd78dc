"""Tables that a source captures: one that came later is taken in, or declined.

A table is taken in as a source is added, beside what is captured already: topic, epoch, membership of the
publication, the connector's configuration, targets. The rows that it has are read by a run. The other tables
are applied all the while; only the connector starts over once, which takes some seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from connectors.base import Capture, Keys, Source, topic_of
from connectors.registry import why_unreadable
from headrace.config.pipeline import load_pipeline
from headrace.control import remedies
from headrace.control.alone import alone
from headrace.control.capture import capture_now, capture_of, source_of
from headrace.control.claims import refuse_own
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.epochs import next_epochs
from headrace.control.first_load import being_taken_in
from headrace.control.fitness import (
    refuse_not_streaming,
    refuse_unfit,
    refuse_unmeant,
    refuse_used,
)
from headrace.control.gap import gap_error
from headrace.control.kafka import Kafka
from headrace.control.keep_out import scope
from headrace.control.newcomers import listed, named
from headrace.control.opened import opened_sink
from headrace.control.pipelines import pipeline_of, rewrite, spec_path, withheld
from headrace.control.registry import (
    Registry,
    ResnapshotEntry,
    SinkEntry,
    SourceEntry,
    SourceTableEntry,
)
from headrace.control.runs.repository import active, topics_of
from headrace.control.runs.start import hand_over, start, wait_whole
from headrace.control.runs.words import in_words
from headrace.control.sink_remove import remove_made
from headrace.control.spared import Spared, Unfit, spared
from headrace.control.tables_check import leaving_out, mirrors_of, refused_by_source, refused_by_stores
from headrace.control.targets import begin, create, missing, refuse_shared
from headrace.control.topics import topics_of as every_topic
from headrace.control.undone import forget, note_targets, note_topics, settled
from headrace.control.verdicts import FIRST_LOAD, over, record, standing
from headrace.model.errors import SinkError, UsageError
from headrace.model.finding import Severity
from headrace.model.schema import TableId

__all__ = ["leave_out", "take_in", "tell_connector"]

Say = Callable[[str], None]


def take_in(
    context: Context,
    name: str,
    tables: Sequence[TableId],
    *,
    keys: Keys | None = None,
    sinks: Sequence[str] = (),
    skip_unfit: bool = False,
    wait_loaded: bool = True,
    say: Say = lambda _: None,
    skipped: Callable[[Unfit], None] = lambda _: None,
) -> str:
    """Have a source capture further tables, and sinks mirror them; return the id of the run that loads them.

    A command that was broken off is finished by the same command.

    Args:
        context: The installation.
        name: The source.
        tables: Which tables.
        keys: Keys that stand for the tables' primary keys.
        sinks: Those that are to mirror them; when empty, each that mirrors all that the source captures.
        skip_unfit: Leave out, by name, tables that the database or the check of one of these sinks refuses
            for themselves; else one of them refuses all.
        wait_loaded: Return when every row is in every sink; else as soon as the run has begun.
        say: Told what happens.
        skipped: Told which tables are left out, and why, before anything is made.

    Raises:
        UsageError: When a table is captured already (``TABLE_CAPTURED``).
        SourceError: When a table is unfit, changes are lost (``SOURCE_GAP``), or the connector does not
            stream; nothing is captured then. Or when only a recovery reads the rows that a table has already
            (``RESNAPSHOT_UNREADABLE``); it is captured.
        SinkError: When a store refuses a target; nothing is captured then.
    """
    registry = Registry(context.registry)
    wanted = list(dict.fromkeys(tables))
    with alone(context, name, "a command that takes tables in", say):
        entry = registry.source(name)
        _refuse_captured(registry, entry, wanted)
        if entry.gap:
            raise gap_error(context, entry, entry.gap)
        refuse_not_streaming(context, entry)
        known = {table.schema.table for table in entry.tables}
        new = [table for table in wanted if table not in known]
        if new:
            say("checking the tables")
            keys, chosen = keys or {}, mirrors_of(registry, entry, sinks)
            again = leaving_out(name, wanted, keys, sinks, wait=wait_loaded)
            left = _fit(context, entry, wanted, keys, chosen, skip=skip_unfit, again=again)
            skipped(left.unfit)
            wanted, new = list(left.tables), [table for table in new if table not in left.unfit]
            if new:
                keys = {table: key for table, key in keys.items() if table in new}
                _register(context, registry, entry, new, keys, mirrors_of(registry, entry, sinks), say)
            entry = registry.source(name)
        mine = [table for table in entry.tables if table.schema.table in wanted]
        source, capture = source_of(context, entry), capture_of(context, entry)
        source.publish(capture)
        tell_connector(context, source, capture, say, new=wanted)
        for sink in registry.sinks(name):
            _hand_over(context, entry, sink, [table for table in mine if table.topic in sink.tables], say)
        topics = {table.topic for table in mine}
        # One of the whole source may leave them out; one that has begun without them does not read them.
        runs = [run for run in active(registry, name) if not run.plan.get("whole")]
        run = next((run for run in runs if topics <= topics_of(run) and _reads(run, topics)), None)
        if run is None:
            say(f"reading the rows of {', '.join(map(str, wanted))}")
            why = "the tables were taken in"
            mirrors = [sink.name for sink in registry.sinks(name) if topics & sink.tables.keys()]
            # What no run can read is left out of it, and told with the recovery that reads it.
            spare = any(why_unreadable(entry.kind, table.schema) for table in mine)
            run = start(context, name, tables=wanted, sinks=mirrors, why=why, queue=True, spare=spare)
        else:  # whoever noted it may have died before it was handed over
            hand_over(context, run)
    if new:
        registry.note(f"source {name}", "tables taken in", tables=[str(table) for table in new], run=run.id)
    if wait_loaded:
        wait_whole(context, run.id, see=in_words(say))
    return run.id


def _reads(run: ResnapshotEntry, topics: set[str]) -> bool:
    marks = run.plan["marks"]
    return not marks or topics <= marks.keys()


def leave_out(context: Context, name: str, tables: Sequence[TableId]) -> None:
    """Remember that tables are not to be captured, so that nobody is asked about them any more.

    Raises:
        UsageError: When one of them is captured (``TABLE_CAPTURED``).
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    captured = [table for table in tables if table in {known.schema.table for known in entry.tables}]
    if captured:
        raise _captured(name, captured)
    _decide(registry, name, lambda known: known | set(tables))
    registry.note(f"source {name}", "tables left out", tables=[str(table) for table in tables])


def _decide(registry: Registry, name: str, change: Callable[[set[TableId]], Iterable[TableId]]) -> None:
    with registry.begin() as session:
        found = session.get_one(SourceEntry, name)
        found.left_out = listed(change(named(found.left_out)))


def _captured(name: str, tables: Sequence[TableId]) -> UsageError:
    return UsageError(
        f"Source {name} captures {', '.join(map(str, tables))} already.",
        code="TABLE_CAPTURED",
        hint=f"headrace source show {name}",
    )


def _refuse_captured(registry: Registry, entry: SourceEntry, wanted: Sequence[TableId]) -> None:
    """Refuse tables that are captured, but for those of a command that was broken off."""
    begun = {found.topic for found in standing(registry, entry.name) if found.code == FIRST_LOAD}
    done = {table.schema.table for table in entry.tables if table.topic not in begun}
    if captured := [table for table in wanted if table in done]:
        raise _captured(entry.name, captured)


def _fit(
    context: Context,
    entry: SourceEntry,
    wanted: Sequence[TableId],
    keys: Keys,
    sinks: Sequence[SinkEntry],
    *,
    skip: bool,
    again: str,
) -> Spared:
    """Return the tables that are to be captured, some of which may be already, and those that are left out.

    Raises:
        SourceError: When the database refuses a table that is not to be left out, or all.
        SinkError: When a store does.
    """
    source, known = source_of(context, entry), capture_of(context, entry)
    new = [table for table in wanted if table not in {schema.table for schema in known.tables}]
    refuse_unmeant(new, keys)
    found = refused_by_source(source, known, entry, new, keys)
    by_source = any(one.severity is Severity.ERROR for one in found)
    found += list(refused_by_stores(source, found, new, keys, sinks))
    left = spared(found, wanted, skip=skip, again=again)
    if by_source:
        refuse_unfit(left.findings)
    refuse_unfit(left.findings, SinkError, "SINK_UNFIT")
    return left


def _register(
    context: Context,
    registry: Registry,
    entry: SourceEntry,
    tables: Sequence[TableId],
    keys: Keys,
    chosen: Sequence[SinkEntry],
    say: Say,
) -> None:
    """Make topics and targets; then note the tables, at once, as being loaded."""
    source, known = source_of(context, entry), capture_of(context, entry)
    capture = replace(known, tables=(*known.tables, *source.catalogue(tables, keys)))
    added = capture.tables[len(known.tables) :]
    kafka = Kafka(context.kafka_bootstrap)
    topics = [topic_of(entry.name, schema.table) for schema in added]
    every_one = every_topic(capture)
    refuse_used(kafka, [topic.name for topic in every_one], topics)
    there = kafka.names()
    with ExitStack() as undo:
        # To be taken back before it is done: one that is refused has others made beside it.
        undo.callback(_delete, registry, kafka, [t.name for t in every_one if t.name not in there])
        begun = {topic: schema for topic, schema in zip(topics, added, strict=True) if topic not in there}
        note_topics(registry, entry.name, begun)
        kafka.create(every_one)
        ids, epochs = kafka.ids(topics), next_epochs(registry, kafka, topics)
        first = max((table.place for table in entry.tables), default=-1) + 1
        made = [
            SourceTableEntry(
                source=entry.name,
                topic=topic,
                place=place,
                topic_id=ids[topic],
                epoch=epochs[topic],
                table=schema.as_dict(),
            )
            for place, (topic, schema) in enumerate(zip(topics, added, strict=True), first)
        ]
        targets = {sink.name: _targets(context, registry, sink, made, undo, say) for sink in chosen}
        # Before it is noted: a look that finds it noted and not published would take it for lost.
        undo.callback(source.publish, known)
        source.publish(capture)
        told = being_taken_in(remedies.take_in(entry.name, tables))
        for topic in topics:
            undo.callback(over, registry, entry.name, topic, FIRST_LOAD)
        record(registry, entry, topics, FIRST_LOAD, told)
        with registry.begin() as session:
            session.add_all(made)
            settled(session, "", topics)
            for sink_name, facts in targets.items():
                sink = session.get_one(SinkEntry, sink_name)
                sink.tables = {**sink.tables, **facts}
                settled(session, sink_name, facts)
        undo.pop_all()
    _decide(registry, entry.name, lambda left: left - set(tables))


def _delete(registry: Registry, kafka: Kafka, topics: Sequence[str]) -> None:
    kafka.delete(topics)
    forget(registry, topics)


def _targets(
    context: Context,
    registry: Registry,
    entry: SinkEntry,
    tables: Sequence[SourceTableEntry],
    undo: ExitStack,
    say: Say,
) -> Mapping[str, Any]:
    """Make the tables' targets at a sink, to be taken back by ``undo``; return their facts by topic."""
    with opened_sink(entry) as sink:
        schemas = [table.schema for table in tables]
        facts = {table.topic: dict(sink.target(table.schema).facts) for table in tables}
        refuse_shared(
            registry, SinkEntry(name=entry.name, kind=entry.kind, settings=entry.settings, tables=facts)
        )
        refuse_own(context, entry.name, sink, schemas)
        say(f"{entry.name}: creating {len(tables)} targets")
        new = {schema.table for schema in missing(sink, schemas)}
        undo.callback(remove_made, context, entry, tables)
        note_targets(registry, entry, facts, tables, new)
        create(sink, tables)
    return facts


def tell_connector(
    context: Context, source: Source, capture: Capture, say: Say, *, new: Collection[TableId] = ()
) -> None:
    """Give the connector the tables to read, when they are others now; one that is gone stays so.

    Args:
        context: The installation.
        source: The database.
        capture: What is to be captured of it.
        say: Told what is done.
        new: Tables that it has not read so far. Of the others no column that is captured is left out.
    """
    now = capture_now(source, capture)
    out = {one.table: one.extra.get("excluded", ()) for one in now.tables if one.table in new}
    with Connect(context.connect_url) as connect:
        there = connect.config(capture.connector)
        wanted = scope(source, now, there, out)
        if there and any(there.get(name) != wanted.get(name) for name in _SCOPE):
            say("telling the connector")
            kept = {name: value for name, value in there.items() if name not in _SCOPE}
            connect.replace(capture.connector, {**kept, **{n: wanted[n] for n in _SCOPE if n in wanted}})


_SCOPE = ("table.include.list", "column.exclude.list", "message.key.columns")


def _hand_over(
    context: Context, source: SourceEntry, entry: SinkEntry, tables: Sequence[SourceTableEntry], say: Say
) -> None:
    """Have the sink's query go on with further tables; those that it has already are left alone."""
    spec = load_pipeline(spec_path(context, entry.name))
    known = {table.topic for table in spec.tables}
    new = [table for table in tables if table.topic not in known]
    if not (new or spec.withheld):
        return
    with withheld(context, entry.name, doing="a command that takes tables in", say=say):
        if not new:  # who was killed with them in it lets it go on
            return
        say(f"{entry.name}: taking in {len(new)} tables")
        with opened_sink(entry) as sink:
            begin(context, entry.name, sink, new, take_over=False, say=say)
        more = pipeline_of(context, source, entry, new).tables
        rewrite(context, entry.name, lambda spec: {"tables": (*spec.tables, *more)})
