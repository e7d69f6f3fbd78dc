"""A source whose tables have changed their columns: seen, followed by every sink, noted in the journal.

What is followed and how: a column that is new is added to the targets, and the table is read anew, for rows
written before would lack it; a column that is gone stays in the targets and is written no more; a column that
became wider is widened where the store can. A change of the key, or a type that does not pass into the new
one, is refused by name before anything is done.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from connectors.base import Capture
from headrace.config.pipeline import PipelineSpec, load_pipeline, write_private
from headrace.control import resnapshot
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.progress import read_progress
from headrace.control.registry import Registry, SinkEntry, SourceEntry, SourceTableEntry
from headrace.control.runner import engine_state, ensure_engine
from headrace.control.sink import open_sink
from headrace.model.errors import SinkError, SourceError
from headrace.model.schema import Column, TableId, TableSchema

__all__ = ["TableChange", "changes", "refresh"]

Say = Callable[[str], None]
_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class TableChange:
    """How a table differs from what was registered.

    Args:
        table: Which table.
        added: New columns.
        dropped: Columns that are gone.
        retyped: Columns of another type, as ``name: old → new``.
        schema: The table as it is now.
        recreated: Whether the connector was not told of it: it was dropped and made anew, or taken out.
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

    Raises:
        SourceError: When a key has changed (``SOURCE_KEY_CHANGED``) or a table is gone.
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    known = [table.schema for table in entry.tables]
    # A sink that was told to ignore a change stands where it stood before.
    for sink in _chosen(registry, name, sinks):
        known += [table.schema_ for table in load_pipeline(context.pipelines / f"{sink.name}.json").tables]
    named = [table.schema.table for table in entry.tables]
    found = source_of(context, entry).catalogue(named, _declared(known))
    changed: dict[TableId, TableChange] = {}
    for now in found:
        for before in known:
            if before.table == now.table and (change := _change(name, before, now)) is not None:
                changed.setdefault(now.table, change)
    today = {schema.table: schema for schema in found}
    for table in source_of(context, entry).hold(capture_of(context, entry)).uncaptured:
        same = TableChange(table, (), (), (), today[table])
        changed[table] = replace(changed.get(table, same), recreated=True)
    return list(changed.values())


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
        SinkError: When a store cannot follow; what was registered stays as it was.
    """
    registry = Registry(context.registry)
    with _alone(context):
        changed = changes(context, name, sinks)
        if not changed:
            return []
        _follow(context, registry, name, changed, _chosen(registry, name, sinks), say)
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
    grown = [change.table for change in changed if change.grown]
    if grown and read_anew:
        say(f"reading {len(grown)} tables anew")
        resnapshot.resnapshot(context, name, tables=grown, say=say)
    return changed


@contextmanager
def _alone(context: Context) -> Iterator[None]:
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
    say: Say,
) -> None:
    schemas = {change.table: change.schema for change in changed}
    grown = [change.table for change in changed if change.grown]
    paused: dict[str, bool] = {}
    try:
        for sink in sinks:
            paused[sink.name] = _stop(context, sink.name)
        for sink in sinks:
            _prepare(registry.source(name), sink, schemas, say)
        _register(context, registry, name, schemas, grown, sinks)
        _tell_connector(context, registry.source(name), changed, say)
    finally:
        for sink in sinks:
            if sink.name in paused:
                _restart(context, registry.source(name), sink, paused=paused[sink.name])


def _change(source: str, known: TableSchema, now: TableSchema) -> TableChange | None:
    if known.key != now.key:
        raise SourceError(
            f"The key of {now.table} has changed from ({', '.join(known.key)}) to ({', '.join(now.key)}).",
            code="SOURCE_KEY_CHANGED",
            hint=f"Other rows are meant now: remove its sinks and source {source}, and add them anew.",
        )
    before, after = known.by_name, now.by_name
    both = [name for name in after if name in before and _kind(before[name]) != _kind(after[name])]
    change = TableChange(
        now.table,
        added=tuple(name for name in after if name not in before),
        dropped=tuple(name for name in before if name not in after),
        retyped=tuple(f"{name}: {before[name].native} → {after[name].native}" for name in both),
        schema=now,
    )
    return change if change.added or change.dropped or change.retyped else None


def _declared(schemas: Iterable[TableSchema]) -> dict[TableId, tuple[str, ...]]:
    return {schema.table: schema.key for schema in schemas if schema.declared}


def _kind(column: Column) -> tuple[object, ...]:
    return column.type, column.dimensions, column.precision, column.scale, column.native


def _stop(context: Context, sink: str) -> bool:
    """Have the engine put the sink's query down; return whether it was paused before."""
    path = context.pipelines / f"{sink}.json"
    spec = load_pipeline(path)
    if spec.paused:
        return True
    write_private(path, spec.model_copy(update={"paused": True}).model_dump_json())
    deadline = time.monotonic() + _PAUSE_S
    while time.monotonic() < deadline:
        progress = read_progress(context.progress, sink)
        at_rest = progress is None or progress.state == "paused"
        if at_rest or engine_state(context.progress)["state"] in ("absent", "silent", "stopped"):
            return False
        time.sleep(0.1)
    write_private(path, spec.model_dump_json())
    raise SinkError(
        f"The engine has not let go of sink {sink} after {_PAUSE_S:.0f} s.",
        code="SINK_BUSY",
        hint="Its store may not answer; see `headrace lag`.",
    )


def _prepare(source: SourceEntry, entry: SinkEntry, schemas: Mapping[TableId, TableSchema], say: Say) -> None:
    mine = {table.schema.table for table in source.tables if table.topic in entry.tables}
    with closing(open_sink(entry)) as sink:
        for table, schema in schemas.items():
            if table in mine:
                say(f"{entry.name}: following the columns of {table}")
                sink.prepare(schema)


def _register(
    context: Context,
    registry: Registry,
    name: str,
    schemas: Mapping[TableId, TableSchema],
    grown: Sequence[TableId],
    sinks: Sequence[SinkEntry],
) -> None:
    """Note the tables as they are now, and that rows of before lack what has been added."""
    topics = [table.topic for table in registry.source(name).tables if table.schema.table in grown]
    ends = {topic: end for (topic, _), (_, end) in Kafka(context.kafka_bootstrap).ends(topics).items()}
    with registry.begin() as session:
        for table in session.get_one(SourceEntry, name).tables:
            now = schemas.get(table.schema.table)
            if now is not None:
                table.table = now.as_dict()
        for sink in sinks:
            entry = session.get_one(SinkEntry, sink.name)
            mine = {topic: end for topic, end in ends.items() if topic in entry.tables}
            entry.incomplete = {**entry.incomplete, **mine}


def _tell_connector(context: Context, entry: SourceEntry, changed: Sequence[TableChange], say: Say) -> None:
    """Give the connector the columns to leave out, when there are others now."""
    source = source_of(context, entry)
    capture = capture_of(context, entry)
    known = [schema.table for schema in capture.tables]
    tables = tuple(source.catalogue(known, _declared(capture.tables)))
    wanted = source.properties(
        Capture(capture.source, tables, capture.placeholder, capture.password, capture.settings)
    )
    with Connect(context.connect_url) as connect:
        if connect.config(capture.connector).get(_LEFT_OUT) != wanted.get(_LEFT_OUT):
            say("telling the connector which columns to leave out")
            connect.create(capture.connector, wanted)
        if any(change.recreated for change in changed):
            source.publish(capture)
        # It learns a table's columns from the first change after them, which a snapshot does not wait for.
        say("letting the connector read the columns anew")
        connect.start_over(capture.connector)


_LEFT_OUT = "column.exclude.list"


def _restart(context: Context, source: SourceEntry, sink: SinkEntry, *, paused: bool) -> None:
    path = context.pipelines / f"{sink.name}.json"
    spec = load_pipeline(path)
    tables = {table.topic: table for table in source.tables}
    write_private(path, _with(spec, tables, paused=paused).model_dump_json())


def _with(spec: PipelineSpec, tables: Mapping[str, SourceTableEntry], *, paused: bool) -> PipelineSpec:
    specs = tuple(table.model_copy(update={"table": tables[table.topic].table}) for table in spec.tables)
    return spec.model_copy(update={"tables": specs, "paused": paused})
