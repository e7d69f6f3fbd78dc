"""A sink's life: checked, its targets created, its pipeline handed to the engine, removed again."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headrace.config.pipeline import PipelineSpec, SchemaPolicy, TableSpec, load_pipeline, write_private
from headrace.config.source import valid_name
from headrace.control import deadletters
from headrace.control.claims import claim_targets, installation, owner_file
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.progress import read_progress, wait_settled
from headrace.control.registry import Registry, SinkEntry, SourceEntry, SourceTableEntry, now_ms
from headrace.control.runner import engine_state, ensure_engine
from headrace.model.errors import SinkError, UsageError
from headrace.model.finding import Finding, Severity
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from sinks import registry as kinds
from sinks.base import Sink

__all__ = ["add", "checked_settings", "open_sink", "pause", "remove", "resume", "tables_of", "wait_running"]

Say = Callable[[str], None]
_START_S = 180.0
_STOP_S = 30.0
_SAMPLE = 1_000
_TARGETS_AT_ONCE = 8
_PREFIXES = {"prefix": "-", "key_prefix": ":"}


def checked_settings(kind: str, source: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings when the kind's own model accepts them.

    Names in the store begin with the source's name unless the settings say otherwise, so that two
    sources with equal tables do not meet.

    Raises:
        UsageError: When it does not (``SINK_KIND_UNKNOWN``, ``SINK_SETTINGS_INVALID``).
    """
    model = kinds.config_model(kind)
    complete = {
        **{name: source + mark for name, mark in _PREFIXES.items() if name in model.model_fields},
        **settings,
    }
    try:
        model(**complete)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'settings'}: {problem['msg']}"
            for problem in error.errors()
        )
        known = ", ".join(model.model_fields)
        raise UsageError(
            f"The settings do not fit a {kind} sink: {wrong}.",
            code="SINK_SETTINGS_INVALID",
            hint=f"Settings of {kind}: {known}.",
        ) from None
    return complete


def add(
    context: Context,
    name: str,
    kind: str,
    *,
    settings: Mapping[str, Any],
    source: str | None = None,
    tables: Sequence[TableId] = (),
    wait: bool = True,
    take_over: bool = False,
    on_schema_change: SchemaPolicy = SchemaPolicy.LENIENT,
    say: Say = lambda _: None,
) -> tuple[SinkEntry, list[Finding]]:
    """Register a sink, create its targets and start applying; return it and what the check said.

    Without ``wait`` it returns when the engine was told; with it, when the sink's query runs. After
    a resnapshot of the source it always waits until the sink has passed that, to sweep it. With
    ``take_over`` another installation that writes to the targets is stopped.

    Raises:
        UsageError: When the name, the settings or the target are taken or invalid.
        SinkError: When the store is unfit or the query fails to start.
    """
    valid_name(name, of="sink")
    registry = Registry(context.registry)
    if name in (entry.name for entry in registry.sinks()):
        raise UsageError(
            f"There is a sink “{name}” already.", code="SINK_EXISTS", hint=f"headrace sink remove {name}"
        )
    origin = registry.source(source) if source else registry.only_source()
    captured = _captured(origin, tables)
    entry = SinkEntry(
        name=name,
        kind=kind,
        source=origin.name,
        settings=checked_settings(kind, origin.name, settings),
        tables={},
        incomplete=_trimmed(Kafka(context.kafka_bootstrap), captured, registry.reread(origin.name)),
        on_schema_change=on_schema_change.value,
        created_ms=now_ms(),
    )
    with ExitStack() as undo:
        with closing(open_sink(entry)) as sink:
            say("checking the store")
            findings = sink.check()
            _refuse_unfit(findings)
            entry.tables = {table.topic: dict(sink.target(table.schema).facts) for table in captured}
            _refuse_shared(registry, entry)
            say(f"creating {len(captured)} targets")
            _create(sink, captured)
            undo.callback(owner_file(context, name).unlink, missing_ok=True)
            _begin(context, name, sink, captured, take_over=take_over, say=say)
        with registry.begin() as session:
            session.add(entry)
        undo.callback(_unregister, registry, name)
        say("starting to apply")
        _discard_run(context, name)
        undo.callback(_withdraw, context, name)
        write_private(_spec_path(context, name), _spec(context, origin, entry, captured).model_dump_json())
        ensure_engine(context)
        if wait:
            wait_running(context, name)
        _sweep_gone(context, registry, entry, captured, say)
        undo.pop_all()
    registry.note(f"sink {name}", "added", kind=kind, source=origin.name)
    return entry, findings


def wait_running(context: Context, name: str, *, timeout: float = _START_S) -> None:
    """Return when the sink's query runs.

    Raises:
        SinkError: When it fails, with the engine's own reason, or does not run in time.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        progress = read_progress(context.progress, name)
        if progress is not None and progress.state == "running":
            return
        if progress is not None and progress.state == "failed" and progress.error:
            error = progress.error
            raise SinkError(error["message"], code=error["code"], hint=error.get("hint", ""))
        time.sleep(0.1)
    engine = engine_state(context.progress)["state"]
    raise SinkError(
        f"Sink {name} does not run after {timeout:.0f} s; the engine is {engine}.",
        code="SINK_NOT_STARTED",
        hint=f"The engine's log is in {context.engine().logs}.",
    )


def remove(context: Context, name: str, *, purge: bool = False, say: Say = lambda _: None) -> None:
    """Stop applying and forget the sink; with ``purge`` its targets and their data go too.

    Raises:
        SinkError: When ``purge`` fails; the sink then stays registered, stopped, to be removed again.
    """
    registry = Registry(context.registry)
    entry = registry.sink(name)
    say("stopping its query")
    _withdraw(context, name)
    if purge:
        say("removing its targets")
        with closing(open_sink(entry)) as sink:
            for table in tables_of(registry, entry):
                sink.drop(table.schema)
            sink.forget(entry.tables)
        shutil.rmtree(context.dead_letters / name, ignore_errors=True)
        deadletters.forget(context, name)
    _discard_run(context, name)
    owner_file(context, name).unlink(missing_ok=True)
    _unregister(registry, name)
    registry.note(f"sink {name}", "removed", purged=purge)


def pause(context: Context, name: str) -> None:
    """Stop applying; changes wait in Kafka."""
    _set_paused(context, name, True)


def resume(context: Context, name: str, *, take_over: bool = False) -> None:
    """Apply on; starts the engine when it does not run. With ``take_over`` any other writer is stopped."""
    if take_over:
        registry = Registry(context.registry)
        entry = registry.sink(name)
        with closing(open_sink(entry)) as sink:
            schemas = [table.schema for table in tables_of(registry, entry)]
            claim_targets(context, name, sink, schemas, take_over=True)
        registry.note(f"sink {name}", "taken over")
    _set_paused(context, name, False)
    ensure_engine(context)


def open_sink(entry: SinkEntry) -> Sink:
    """Return the entry's store; close it after use."""
    return kinds.build(entry.kind, entry.name, entry.settings)


def tables_of(registry: Registry, entry: SinkEntry) -> list[SourceTableEntry]:
    """Return the tables the sink mirrors, in the source's order."""
    return [table for table in registry.source(entry.source).tables if table.topic in entry.tables]


def _captured(origin: SourceEntry, wanted: Sequence[TableId]) -> list[SourceTableEntry]:
    known = {table.schema.table: table for table in origin.tables}
    missing = [str(table) for table in wanted if table not in known]
    if missing:
        raise UsageError(
            f"Source {origin.name} does not capture {', '.join(missing)}.",
            code="TABLE_NOT_CAPTURED",
            hint=f"Captured: {', '.join(map(str, known))}.",
        )
    return [known[table] for table in wanted] if wanted else list(known.values())


def _trimmed(
    kafka: Kafka, captured: Sequence[SourceTableEntry], reread: Mapping[str, tuple[list[int], list[int]]]
) -> dict[str, Any]:
    """Return the topics from which a new sink can no longer load every row."""
    ends = kafka.ends([table.topic for table in captured])
    whole = {(topic, n): mark for topic, (marks, _) in reread.items() for n, mark in enumerate(marks)}
    return {place[0]: first for place, (first, _) in ends.items() if first > whole.get(place, 0)}


def _sweep_gone(
    context: Context, registry: Registry, entry: SinkEntry, captured: Sequence[SourceTableEntry], say: Say
) -> None:
    """Remove rows that the topics still tell of, though a resnapshot has shown that they are gone."""
    reread = registry.reread(entry.source)
    chosen = [table for table in captured if table.topic in reread]
    if not chosen:
        return
    ends = {(table.topic, n): end for table in chosen for n, end in enumerate(reread[table.topic][1])}
    wait_settled(context.progress, entry.name, ends, say=say)
    with closing(open_sink(entry)) as sink:
        for table in chosen:
            for partition, mark in enumerate(reread[table.topic][0]):
                sink.truncate(table.schema, Position(table.epoch, mark, partition))


def _refuse_unfit(findings: Sequence[Finding]) -> None:
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise SinkError(
            " ".join(finding.message for finding in errors),
            code=errors[0].code if len(errors) == 1 else "SINK_UNFIT",
            hint="\n".join(finding.hint for finding in errors if finding.hint),
        )


def _refuse_shared(registry: Registry, entry: SinkEntry) -> None:
    """Two writers of one target would each undo the other's deletes."""
    for other in registry.sinks():
        if other.kind != entry.kind or _place(other.settings) != _place(entry.settings):
            continue
        shared = [facts for facts in entry.tables.values() if facts in other.tables.values()]
        if shared:
            raise UsageError(
                f"Sink {other.name} writes to the same target already: {shared[0]}.",
                code="SINK_TARGET_TAKEN",
                hint="Give the new sink another prefix or path.",
            )


def _place(settings: Mapping[str, Any]) -> object:
    return settings.get("url")


def _create(sink: Sink, captured: Sequence[SourceTableEntry]) -> None:
    """Create the targets, several at once: stores answer slowly, and mostly wait for a disk."""
    with ThreadPoolExecutor(_TARGETS_AT_ONCE) as pool:
        for _ in pool.map(lambda table: sink.prepare(table.schema), captured):
            pass


def _begin(
    context: Context,
    name: str,
    sink: Sink,
    captured: Sequence[SourceTableEntry],
    *,
    take_over: bool,
    say: Say,
) -> None:
    """Claim the targets and remove what an earlier life of the source left in them.

    Rows of a later life are refused, for ours would never replace them; ``take_over`` removes them.
    """
    schemas = [table.schema for table in captured]
    with ThreadPoolExecutor(_TARGETS_AT_ONCE) as pool:
        versions = list(pool.map(partial(_versions, sink), schemas))
    ahead = [t for t, (_, newest) in zip(captured, versions, strict=True) if newest >= _after(t)]
    if ahead and not take_over:
        raise SinkError(
            f"The target of {ahead[0].schema.table} holds rows of a later life of this source than ours.",
            code="SINK_TARGET_AHEAD",
            hint="Another installation may write there: choose another target; or add --take-over, "
            "which removes them.",
        )
    claim_targets(context, name, sink, schemas, take_over=take_over)
    for table, (oldest, _) in zip(captured, versions, strict=True):
        if table in ahead:
            say(f"{table.schema.table}: removing rows of another installation")
            sink.drop(table.schema)
            sink.prepare(table.schema)
        elif oldest < Position(table.epoch, 0).version:
            say(f"{table.schema.table}: removing rows of an earlier life of the source")
            sink.truncate(table.schema, Position(table.epoch, 0))
    if ahead:
        claim_targets(context, name, sink, schemas, take_over=True)


def _after(table: SourceTableEntry) -> int:
    """Return the first version beyond the table's own."""
    return Position(table.epoch + 1, 0).version


def _versions(sink: Sink, schema: TableSchema) -> tuple[int, int]:
    """Return the lowest and the highest version among some rows of a target; none is above all and below."""
    versions = [stored.version for stored in islice(sink.scan(schema), _SAMPLE)]
    return min(versions, default=sys.maxsize), max(versions, default=-1)


def _spec(
    context: Context, origin: SourceEntry, entry: SinkEntry, captured: Sequence[SourceTableEntry]
) -> PipelineSpec:
    n = origin.partitions
    return PipelineSpec(
        sink=entry.name,
        kind=entry.kind,
        settings=entry.settings,
        source=origin.name,
        kafka_bootstrap=context.kafka_bootstrap,
        placeholder=origin.placeholder,
        tables=tuple(TableSpec(topic=t.topic, epoch=t.epoch, table=t.table, partitions=n) for t in captured),
        checkpoint=context.checkpoints / entry.name,
        dead_letters=context.dead_letters / entry.name,
        owner=owner_file(context, entry.name),
        home=installation(context),
        on_schema_change=SchemaPolicy(entry.on_schema_change),
    )


def _spec_path(context: Context, name: str) -> Path:
    return context.pipelines / f"{name}.json"


def _set_paused(context: Context, name: str, paused: bool) -> None:
    registry = Registry(context.registry)
    registry.sink(name)
    path = _spec_path(context, name)
    spec = load_pipeline(path)
    if spec.paused != paused:
        write_private(path, spec.model_copy(update={"paused": paused}).model_dump_json())
        registry.note(f"sink {name}", "paused" if paused else "resumed")


def _withdraw(context: Context, name: str) -> None:
    """Take the pipeline from the engine and wait until it has let go."""
    _spec_path(context, name).unlink(missing_ok=True)
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        progress = read_progress(context.progress, name)
        if progress is None or progress.state in ("removed", "stopped"):
            return
        if engine_state(context.progress)["state"] in ("absent", "silent", "stopped"):
            return
        time.sleep(0.1)
    raise SinkError(
        f"The engine has not let go of sink {name} after {_STOP_S:.0f} s.",
        code="SINK_BUSY",
        hint="Try again; or stop the engine with `headrace down`.",
    )


def _discard_run(context: Context, name: str) -> None:
    """Remove checkpoint and progress, so that a namesake later reads from the beginning."""
    shutil.rmtree(context.checkpoints / name, ignore_errors=True)
    shutil.rmtree(context.requests / name, ignore_errors=True)
    (context.progress / f"{name}.json").unlink(missing_ok=True)


def _unregister(registry: Registry, name: str) -> None:
    with registry.begin() as session:
        found = session.get(SinkEntry, name)
        if found is not None:
            session.delete(found)
