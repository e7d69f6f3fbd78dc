"""A source whose tables have changed their columns: seen, followed by every sink, noted in the journal.

What is followed and how: a column that is new is added to the targets, and the table is read anew, for rows
written before would lack it; a column that is gone stays in the targets and is written no more; a column that
became wider is widened where the store can. A table whose key has changed is refused by name, and so is a
target that cannot take a new type; all others are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.config.pipeline import PipelineSpec, SchemaPolicy
from headrace.control import verdicts
from headrace.control.alone import alone
from headrace.control.capture import source_of
from headrace.control.columns import Changes, TableChange, Target, compare
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.keep_out import leaving_out, there_of
from headrace.control.opened import opened_sink
from headrace.control.pipelines import origin_of, rewrite, withheld
from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.control.remedies import read_anew
from headrace.control.runner import ensure_engine
from headrace.control.runs.start import start, wait_whole
from headrace.control.runs.words import in_words
from headrace.control.watcher import look_now
from headrace.model.errors import SinkError
from headrace.model.schema import TableId, TableSchema
from headrace.observe.failpoints import hit

__all__ = ["Followed", "follow", "refresh"]

Say = Callable[[str], None]
Owe = Callable[[str, Collection[TableId]], None]


@dataclass(frozen=True, slots=True)
class Followed:
    """What sinks have followed.

    Args:
        changed: What had changed.
        lacking: Tables of which a sink has rows of before that are not as they are to be.
        refused: Targets that cannot be given the table's new shape, with the reason; a run makes them anew.
        away: Sinks that could not follow, with the reason. What they lack is noted.
    """

    changed: Changes
    lacking: Collection[TableId] = ()
    refused: Mapping[Target, SinkError] = field(default_factory=dict)
    away: Mapping[str, SinkError] = field(default_factory=dict)


def refresh(
    context: Context, name: str, *, read_anew: bool = True, say: Say = lambda _: None
) -> list[TableChange]:
    """Have all sinks follow the tables' columns as they are now; return what has changed.

    Args:
        context: The installation.
        name: The source.
        read_anew: Whether tables are read anew of which older rows lack values, or are to lose some. Until
            that is done, now or by a resnapshot later, these tables are ``resync_required``.
        say: Told what happens.

    Raises:
        SourceError: When a table's key has changed (``SOURCE_KEY_CHANGED``); all other tables are followed.
        SinkError: When a store does not answer, or cannot follow with a table. That target goes on in its
            old shape, as ``resync_required``; all others have followed.
    """
    done = follow(context, name, say=say)
    grown = [*done.lacking]
    sinks = [sink.name for sink in Registry(context.registry).sinks(name) if sink.name not in done.away]
    if grown and read_anew and (sinks or not done.away):
        say(f"reading {len(grown)} tables anew")
        run = start(
            context, name, tables=grown, sinks=sinks, why="columns have changed", queue=True, spare=True
        )
        wait_whole(context, run.id, see=in_words(say))
    done.changed.refuse_keys()
    for error in done.away.values():
        raise error
    for (_, table), error in done.refused.items():
        if table in grown and read_anew:
            continue  # its run has filled another target, which serves now
        raise SinkError(
            error.message,
            code=error.code,
            hint=_rebuilt(Registry(context.registry).source(name), table),
            table=table,
        )
    return done.changed.tables


def follow(
    context: Context,
    name: str,
    *,
    sinks: Collection[str] | None = None,
    again: bool = True,
    owe: Owe = lambda sink, tables: None,
    say: Say = lambda _: None,
) -> Followed:
    """Have sinks follow the tables' columns as they are now; nothing is read anew.

    Args:
        context: The installation.
        name: The source.
        sinks: Those that are to follow; all when None.
        again: Whether targets are tried again that have refused the tables as they are.
        owe: Told of which tables a sink will lack something until they are read anew: before anything is
            done, for who follows may be killed, and again when that is done.
        say: Told what happens.

    Raises:
        HeadraceError: When the database, Kafka or Connect does not answer; nobody follows then.
    """
    registry = Registry(context.registry)
    look_now(context, name)  # what it finds is mended here, too
    with alone(context, name, f"whoever follows the columns of {name}", say):
        seen_ms = registry.moment(name)
        changed = compare(context, name, sinks, again=again)
        if not changed.tables:
            return Followed(changed)
        behind = [sink for sink in registry.sinks(name) if sink.name in changed.sinks]
        for sink in behind:
            owe(sink.name, _lacking(sink, changed))
        _note_lacking(context, registry, behind, changed)
        if changed.source:
            _note_later(registry, name, changed)
            _tell_connector(context, registry.source(name), changed.source, say)
            # A run that read before the connector was told takes the first note back. Before what is followed
            # is registered: who follows after a kill notes nothing of it any more.
            _note_later(registry, name, changed)
            _register(registry, name, changed.source)
            hit("follow.registered", name)
        refused, away = _give(context, registry, behind, changed, owe, say)
        _followed_types(context, registry, name, changed, refused, seen_ms)
        if behind:
            ensure_engine(context)
    mine = [changed.sinks[sink.name] for sink in behind if sink.name not in away]
    for change in changed.tables:
        if not any(change.table in tables for tables in (changed.source, *mine)):
            continue  # it was noted when the others followed
        registry.note(
            f"source {name}",
            "columns changed",
            table=str(change.table),
            added=change.added,
            dropped=change.dropped,
            retyped=change.retyped,
            recreated=change.recreated,
        )
    _tell_refused(registry, registry.source(name), refused)
    lacking = {table for sink in behind if sink.name not in away for table in _lacking(sink, changed)}
    return Followed(changed, [*dict.fromkeys((*changed.grown, *sorted(lacking)))], refused, away)


def _followed_types(
    context: Context,
    registry: Registry,
    name: str,
    changed: Changes,
    refused: Collection[Target],
    seen_ms: int,
) -> None:
    """Note which sinks have followed the types of the tables that have changed.

    A target that refuses them has a verdict of its own.
    """
    every = [sink.name for sink in registry.sinks(name)]
    rest = compare(context, name, every, again=False)
    tables = {change.table for change in changed.tables} - rest.source.keys()
    topics = {t.schema.table: t.topic for t in registry.source(name).tables}
    followed = {
        sink: [
            topics[table]
            for table in tables & topics.keys()
            if table not in rest.sinks.get(sink, ()) or (sink, table) in refused
        ]
        for sink in every
    }
    served = {topic for sink in registry.sinks(name) for topic in sink.tables}
    unserved = {topics[table] for table in tables & topics.keys()} - served
    verdicts.follow_types(registry, name, followed, seen_ms, unserved)


def _tell_refused(registry: Registry, source: SourceEntry, refused: Mapping[Target, SinkError]) -> None:
    """Note of each target that cannot be given the table's new shape that it has to be made anew."""
    topics = {table.schema.table: table.topic for table in source.tables}
    for (sink, table), error in refused.items():
        verdict = verdicts.Verdict(verdicts.State.RESYNC_REQUIRED, error.message, _rebuilt(source, table))
        verdicts.record(registry, source, [topics[table]], error.code, verdict, sink=sink)


def _rebuilt(source: SourceEntry, table: TableId) -> str:
    return read_anew(source, [known.schema for known in source.tables if known.schema.table == table])


def _give(
    context: Context,
    registry: Registry,
    sinks: Sequence[SinkEntry],
    changed: Changes,
    owe: Owe,
    say: Say,
) -> tuple[dict[Target, SinkError], dict[str, SinkError]]:
    """Give sinks the tables as they are now, one after another: each rests only while it is its turn.

    Returns:
        The targets of another shape than can be given, and the sinks that could not follow at all.
    """
    refused: dict[Target, SinkError] = {}
    away: dict[str, SinkError] = {}
    for sink in sinks:
        try:
            with withheld(context, sink.name, doing=f"whoever follows the columns of {sink.source}", say=say):
                refused |= _give_to(context, registry, sink, changed, owe, say)
        except SinkError as error:
            say(f"{sink.name} does not follow: {error.message}")
            away[sink.name] = error
    return refused, away


def _give_to(
    context: Context, registry: Registry, sink: SinkEntry, changed: Changes, owe: Owe, say: Say
) -> dict[Target, SinkError]:
    mine = changed.sinks[sink.name]
    refused = _prepare(sink, mine, say)
    # What was read until now was read without the new columns, also by a run that has begun since.
    _note_lacking(context, registry, [sink], changed)
    # A target that refuses is made anew by the run that reads its table.
    unfit = {table for _, table in refused}
    owe(sink.name, unfit | _lacking(sink, changed))
    given = {table: change.schema for table, change in mine.items() if table not in unfit}
    _renew(context, registry, sink, given)
    return refused


def _lacking(sink: SinkEntry, changed: Changes) -> set[TableId]:
    """Return the tables of which a sink's rows of before are not as they are to be."""
    emptied = sink.on_schema_change == SchemaPolicy.EVOLVE.value
    mine = changed.sinks[sink.name].items()
    return {table for table, change in mine if change.grown or (change.dropped and emptied)}


def _prepare(entry: SinkEntry, changed: Mapping[TableId, TableChange], say: Say) -> dict[Target, SinkError]:
    """Give targets their tables' new columns; return those of another shape than can be given."""
    refused: dict[Target, SinkError] = {}
    with opened_sink(entry) as sink:
        for table, change in changed.items():
            say(f"{entry.name}: following the columns of {table}")
            try:
                sink.prepare(change.schema)
            except SinkError as error:
                if error.table is None:
                    raise
                refused[entry.name, table] = error
    return refused


def _register(registry: Registry, name: str, changed: Mapping[TableId, TableChange]) -> None:
    """Note the tables as they are now."""
    with registry.begin() as session:
        for table in session.get_one(SourceEntry, name).tables:
            now = changed.get(table.schema.table)
            if now is not None:
                table.table = now.schema.as_dict()


def _note_lacking(context: Context, registry: Registry, sinks: Sequence[SinkEntry], changed: Changes) -> None:
    """Note that rows of before are not as they are to be."""
    for sink in sinks:
        lacking = _lacking(sink, changed)
        topics = [t.topic for t in registry.source(sink.source).tables if t.schema.table in lacking]
        if topics:
            ends = Kafka(context.kafka_bootstrap).ends(topics)
            registry.incomplete(sink.name, {topic: end for (topic, _), (_, end) in ends.items()})


def _note_later(registry: Registry, name: str, changed: Changes) -> None:
    """Note, as of now, what sinks that come later will lack of the tables."""
    grown = {table for table, change in changed.source.items() if change.grown}
    source = registry.source(name)
    said = verdicts.State.RESYNC_REQUIRED, "rows of before are told without the columns that came later"
    for table in source.tables:
        if table.schema.table in grown:
            verdict = verdicts.Verdict(*said, _rebuilt(source, table.schema.table))
            verdicts.lacking_later(registry, source, table.topic, verdict)


def _tell_connector(
    context: Context, entry: SourceEntry, changed: Mapping[TableId, TableChange], say: Say
) -> None:
    """Give the connector the columns to leave out, when there are others now."""
    source, capture = source_of(context, entry), there_of(context, entry)
    with Connect(context.connect_url) as connect:
        if told := leaving_out(source, capture, connect.config(capture.connector)):
            say("telling the connector which columns to leave out")
            connect.create(capture.connector, told)
        if any(change.recreated for change in changed.values()):
            source.publish(capture)
        # It learns a table's columns from the first change after them, which a snapshot does not wait for.
        say("letting the connector read the columns anew")
        connect.start_over(capture.connector)


def _renew(
    context: Context, registry: Registry, sink: SinkEntry, schemas: Mapping[TableId, TableSchema]
) -> None:
    """Tell the sink's query of tables as they are now."""

    def now(spec: PipelineSpec) -> Mapping[str, object]:
        known = (
            table.model_copy(update={"table": schemas[table.schema_.table].as_dict()})
            if table.schema_.table in schemas
            else table
            for table in spec.tables
        )
        # A file of before may not say whom to ask for values that no record carries.
        return {"tables": tuple(known), "origin": origin_of(context, registry.source(sink.source))}

    rewrite(context, sink.name, now)
