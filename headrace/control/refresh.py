"""A source whose tables have changed their columns: seen, followed by every sink, noted in the journal.

What is followed and how: a column that is new is added to the targets, and the table is read anew, for rows
written before would lack it; a column that is gone stays in the targets and is written no more; a column that
became wider is widened where the store can. A change of the key, or a type that does not pass into the new
one, is refused by name before anything is done.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from connectors.base import Keys
from headrace.config.pipeline import PipelineSpec, load_pipeline
from headrace.control import verdicts
from headrace.control.capture import capture_now, capture_of, source_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.gap import another_key
from headrace.control.kafka import Kafka
from headrace.control.pipelines import origin_of, rewrite, withheld
from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.control.remedies import read_anew
from headrace.control.runner import ensure_engine
from headrace.control.runs.start import in_words, start, wait
from headrace.control.sink import opened_sink
from headrace.control.watcher import look_now
from headrace.model.errors import SinkError, SourceError
from headrace.model.schema import Column, TableId, TableSchema, declared_keys

__all__ = ["TableChange", "alone", "changes", "refresh"]

Say = Callable[[str], None]
_Target = tuple[str, TableId]
"""A sink and a table of it."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """How a table differs from what was registered.

    Args:
        table: Which table.
        added: New columns.
        dropped: Columns that are gone.
        retyped: Columns of another type, as ``name: old → new``.
        schema: The table as it is now.
        recreated: Whether the connector was not told of it: it was dropped and made anew, or taken out, or
            its publication did not tell of all for a while.
    """

    table: TableId
    added: tuple[str, ...]
    dropped: tuple[str, ...]
    retyped: tuple[str, ...]
    schema: TableSchema
    recreated: bool = False

    @property
    def grown(self) -> bool:
        """Whether rows of before have to be read anew."""
        return bool(self.added) or self.recreated


def changes(context: Context, name: str, sinks: Collection[str] | None = None) -> list[TableChange]:
    """Return how the source's tables differ from what is mirrored; changes nothing.

    Args:
        context: The installation.
        name: The source.
        sinks: Whose tables are meant; all sinks' when None.

    A table that is gone, or that has no key any more, is passed over: ``lag`` tells of it.

    Raises:
        SourceError: When a key has changed (``SOURCE_KEY_CHANGED``).
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    known = [table.schema for table in entry.tables]
    # A sink that was told to ignore a change stands where it stood before.
    for sink in _chosen(registry, name, sinks):
        known += [table.schema_ for table in load_pipeline(context.pipelines / f"{sink.name}.json").tables]
    named = [table.schema.table for table in entry.tables]
    found = there(context, entry, named, declared_keys(known))
    changed: dict[TableId, TableChange] = {}
    all_sinks = [sink.name for sink in registry.sinks(name)]
    for now in found:
        for before in known:
            if before.table == now.table and (change := _change(name, all_sinks, before, now)) is not None:
                changed.setdefault(now.table, change)
    today = {schema.table: schema for schema in found}
    untold = set(source_of(context, entry).hold(capture_of(context, entry)).uncaptured)
    if sinks is None:
        untold |= _untold(registry, entry)
    for table in sorted(untold & today.keys(), key=str):
        same = TableChange(table, (), (), (), today[table])
        changed[table] = replace(changed.get(table, same), recreated=True)
    return list(changed.values())


_PASSED_OVER = ("SOURCE_TABLE_MISSING", "SOURCE_NO_PRIMARY_KEY")


def there(
    context: Context, entry: SourceEntry, tables: Sequence[TableId], declared: Keys
) -> list[TableSchema]:
    """Return the schemas of those of the tables that the database has, and that have a key."""
    source = source_of(context, entry)
    try:
        return source.catalogue(tables, declared)
    except SourceError as error:
        if error.code not in _PASSED_OVER:
            raise
    found: list[TableSchema] = []
    for table in tables:
        try:
            found += source.catalogue([table], declared)
        except SourceError as error:
            if error.code not in _PASSED_OVER:
                raise
    return found


def _untold(registry: Registry, entry: SourceEntry) -> set[TableId]:
    """Return the tables of which changes were not told right, and that have not been read since."""
    topics = {v.topic for v in verdicts.standing(registry, entry.name) if v.code in verdicts.REFRESHED}
    return {table.schema.table for table in entry.tables if table.topic in topics}


def _chosen(registry: Registry, source: str, sinks: Collection[str] | None) -> list[SinkEntry]:
    return [sink for sink in registry.sinks(source) if sinks is None or sink.name in sinks]


def refresh(
    context: Context,
    name: str,
    *,
    sinks: Collection[str] | None = None,
    read_anew: bool = True,
    say: Say = lambda _: None,
) -> list[TableChange]:
    """Have sinks follow the tables' columns as they are now; return what has changed.

    Args:
        context: The installation.
        name: The source.
        sinks: Those that are to follow; all when None.
        read_anew: Whether tables with new columns are read anew, so that older rows get their values. Until
            that is done, now or by a resnapshot later, these tables are ``resync_required``.
        say: Told what happens.

    Raises:
        SourceError: When a key has changed.
        SinkError: When a store cannot follow with a table. That target goes on in its old shape, as
            ``resync_required``; all others have followed.
    """
    registry = Registry(context.registry)
    look_now(context, name)  # what it finds is mended here, too
    with alone(context):
        seen_ms = registry.moment(name)
        changed = changes(context, name, sinks)
        if not changed:
            return []
        refused = _follow(context, registry, name, changed, _chosen(registry, name, sinks), seen_ms, say)
        if registry.sinks(name):
            ensure_engine(context)
    for change in changed:
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
    grown = [change.table for change in changed if change.grown]
    if grown and read_anew:
        say(f"reading {len(grown)} tables anew")
        run = start(context, name, tables=grown, why="columns have changed", queue=True)
        wait(context, run.id, see=in_words(say))
    for (_, table), error in refused.items():
        if table in grown and read_anew:
            continue  # its run has filled another target, which serves now
        raise SinkError(
            error.message, code=error.code, hint=_rebuilt(registry.source(name), table), table=table
        )
    return changed


def _tell_refused(registry: Registry, source: SourceEntry, refused: Mapping[_Target, SinkError]) -> None:
    """Note of each target that cannot be given the table's new shape that it has to be made anew."""
    topics = {table.schema.table: table.topic for table in source.tables}
    for (sink, table), error in refused.items():
        verdict = verdicts.Verdict(verdicts.State.RESYNC_REQUIRED, error.message, _rebuilt(source, table))
        verdicts.record(registry, source, [topics[table]], error.code, verdict, sink=sink)


def _rebuilt(source: SourceEntry, table: TableId) -> str:
    return read_anew(source, [known.schema for known in source.tables if known.schema.table == table])


@contextmanager
def alone(context: Context) -> Iterator[None]:
    """Wait until nobody else follows a source of this installation."""
    context.run.mkdir(parents=True, exist_ok=True)
    with (context.run / "refresh.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _follow(
    context: Context,
    registry: Registry,
    name: str,
    changed: Sequence[TableChange],
    sinks: Sequence[SinkEntry],
    seen_ms: int,
    say: Say,
) -> dict[_Target, SinkError]:
    schemas = {change.table: change.schema for change in changed}
    grown = [change.table for change in changed if change.grown]
    refused: dict[_Target, SinkError] = {}
    with withheld(context, *(sink.name for sink in sinks)):
        try:
            for sink in sinks:
                refused |= _prepare(registry.source(name), sink, schemas, say)
            _note_lacking(context, registry, name, grown, sinks)
            _register(registry, name, schemas)
            _tell_connector(context, registry.source(name), changed, say)
            # What was read until now was read without the new columns, also by a run that has begun since.
            _note_lacking(context, registry, name, grown, sinks)
            if len(sinks) == len(registry.sinks(name)):
                topics = [t.topic for t in registry.source(name).tables if t.schema.table in schemas]
                verdicts.follow_types(registry, name, topics, seen_ms)
        finally:
            for sink in sinks:
                _renew(context, registry, sink, refused)
    return refused


def _change(source: str, sinks: Sequence[str], known: TableSchema, now: TableSchema) -> TableChange | None:
    if known.key != now.key:
        raise SourceError(
            f"The key of {now.table} has changed from ({', '.join(known.key)}) to ({', '.join(now.key)}).",
            code="SOURCE_KEY_CHANGED",
            hint=another_key(source, sinks),
        )
    before, after = known.by_name, now.by_name
    both = [name for name in after if name in before and _kind(before[name]) != _kind(after[name])]
    change = TableChange(
        now.table,
        # What was recorded before tells nothing of a column that was, or will be, looked up.
        added=tuple(n for n in after if n not in before or before[n].computed != after[n].computed),
        dropped=tuple(name for name in before if name not in after),
        retyped=tuple(f"{name}: {before[name].native} → {after[name].native}" for name in both),
        schema=now,
    )
    return change if change.added or change.dropped or change.retyped else None


def _kind(column: Column) -> tuple[object, ...]:
    return column.type, column.dimensions, column.precision, column.scale, column.native


def _prepare(
    source: SourceEntry, entry: SinkEntry, schemas: Mapping[TableId, TableSchema], say: Say
) -> dict[_Target, SinkError]:
    """Give targets their tables' new columns; return those of another shape than can be given."""
    mine = {table.schema.table for table in source.tables if table.topic in entry.tables}
    refused: dict[_Target, SinkError] = {}
    with opened_sink(entry) as sink:
        for table, schema in schemas.items():
            if table in mine:
                say(f"{entry.name}: following the columns of {table}")
                try:
                    sink.prepare(schema)
                except SinkError as error:
                    if error.table is None:
                        raise
                    refused[entry.name, table] = error
    return refused


def _register(registry: Registry, name: str, schemas: Mapping[TableId, TableSchema]) -> None:
    """Note the tables as they are now."""
    with registry.begin() as session:
        for table in session.get_one(SourceEntry, name).tables:
            now = schemas.get(table.schema.table)
            if now is not None:
                table.table = now.as_dict()


def _note_lacking(
    context: Context, registry: Registry, name: str, grown: Sequence[TableId], sinks: Sequence[SinkEntry]
) -> None:
    """Note that rows of before lack what has been added."""
    topics = [table.topic for table in registry.source(name).tables if table.schema.table in grown]
    ends = {topic: end for (topic, _), (_, end) in Kafka(context.kafka_bootstrap).ends(topics).items()}
    for sink in sinks:
        mine = {topic: end for topic, end in ends.items() if topic in sink.tables}
        if mine:
            registry.incomplete(sink.name, mine)


def _tell_connector(context: Context, entry: SourceEntry, changed: Sequence[TableChange], say: Say) -> None:
    """Give the connector the columns to leave out, when there are others now."""
    source, capture = source_of(context, entry), capture_of(context, entry)
    schemas = [schema.table for schema in capture.tables]
    present = {schema.table for schema in there(context, entry, schemas, declared_keys(capture.tables))}
    capture = replace(capture, tables=tuple(t for t in capture.tables if t.table in present))
    wanted = source.properties(capture_now(source, capture))
    with Connect(context.connect_url) as connect:
        has = connect.config(capture.connector)
        if has.get(_LEFT_OUT) != wanted.get(_LEFT_OUT):
            say("telling the connector which columns to leave out")
            kept = {name: value for name, value in (has or wanted).items() if name != _LEFT_OUT}
            told = {_LEFT_OUT: wanted[_LEFT_OUT]} if _LEFT_OUT in wanted else {}
            connect.create(capture.connector, {**kept, **told})
        if any(change.recreated for change in changed):
            source.publish(capture)
        # It learns a table's columns from the first change after them, which a snapshot does not wait for.
        say("letting the connector read the columns anew")
        connect.start_over(capture.connector)


_LEFT_OUT = "column.exclude.list"


def _renew(
    context: Context, registry: Registry, sink: SinkEntry, refused: Mapping[_Target, SinkError]
) -> None:
    """Tell the sink's query of the tables as they are now, where their targets could follow."""
    tables = {
        table.topic: table.table
        for table in registry.source(sink.source).tables
        if (sink.name, table.schema.table) not in refused
    }

    def now(spec: PipelineSpec) -> Mapping[str, object]:
        known = (
            table.model_copy(update={"table": tables.get(table.topic, table.table)}) for table in spec.tables
        )
        # A file of before may not say whom to ask for values that no record carries.
        return {"tables": tuple(known), "origin": origin_of(context, registry.source(sink.source))}

    rewrite(context, sink.name, now)
