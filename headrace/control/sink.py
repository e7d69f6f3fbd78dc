"""A sink's life: checked, its targets created, its pipeline handed to the engine, removed again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from headrace.config.pipeline import SchemaPolicy, write_private
from headrace.config.source import valid_name
from headrace.control.adding import asked_of, begun_sink, is_same_sink, note, refuse_going, sink_exists
from headrace.control.alone import only_one
from headrace.control.claims import owner_file, refuse_own
from headrace.control.context import Context
from headrace.control.fitness import refuse_unfit
from headrace.control.kafka import Kafka
from headrace.control.opened import opened_sink, tables_of
from headrace.control.pipelines import (
    discard_run,
    origin_of,
    pipeline_of,
    rewrite,
    spec_path,
    told_of,
    withdraw,
    worked_on,
)
from headrace.control.progress import read_progress
from headrace.control.registry import Adding, Registry, SinkEntry, SourceEntry, SourceTableEntry
from headrace.control.remake import remake_damaged
from headrace.control.runner import engine_state, ensure_engine
from headrace.control.sink_remove import LeftTarget, let_go, remove, remove_made, unregister
from headrace.control.sink_settings import forget, seal, secrets_of
from headrace.control.sink_tables import asked, leaving_out, trimmed
from headrace.control.spared import left_out_of, warnings
from headrace.control.sweeps import being_read, marks_to_pass, sweep_new_sink
from headrace.control.taking_back import take_back
from headrace.control.targets import begin, create, missing, refuse_shared
from headrace.control.undone import begun_sinks, note_targets, settled
from headrace.model.errors import SinkError, SourceError
from headrace.model.finding import Finding
from headrace.model.schema import TableId
from sinks import registry as kinds

__all__ = ["LeftTarget", "add", "pause", "remove", "resume", "wait_running"]

Say = Callable[[str], None]
_START_S = 180.0


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
    skip_unfit: bool = False,
    say: Say = lambda _: None,
) -> tuple[SinkEntry, list[Finding]]:
    """Register a sink, create its targets and start applying; return it and what the check said.

    Without ``wait`` it returns when the engine was told; with it, when the sink's query runs. After
    a resnapshot of the source it always waits until the sink has passed that, to sweep it. With
    ``take_over`` another installation that writes to the targets is stopped. With ``skip_unfit`` tables that
    the store's check refuses for themselves are left out by name, with a warning; else one refuses all.

    Raises:
        UsageError: When the name, the kind, the settings or the target are taken or invalid. One that a
            killed command has registered is gone on with, or begun anew, when the same is asked for. When the
            source is being removed (``SOURCE_GOING``).
        SinkError: When the store is unfit or the query fails to start.
    """
    valid_name(name, of="sink")
    kinds.config_model(kind)  # before all else: a kind that is mistyped is the nearest mistake
    registry = Registry(context.registry)
    with only_one(context, "sink", name, f"`headrace sink add {name}`", say):
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
        if begun is not None:
            if not is_same_sink(begun, entry, [table.topic for table in captured], skip_unfit):
                raise sink_exists(name)
            if begun.adding == Adding.STARTED.value:
                mine = [table for table in captured if table.topic in begun.tables]
                going = _gone_on_with(context, registry, begun, mine, say, wait=wait)
                return going, warnings(left_out_of(begun, captured))
            say("removing what a command that was killed had begun")
            let_go(context, name, purge=name in begun_sinks(registry), say=say)
        kept = secrets_of(context, name)
        again = leaving_out(
            name,
            kind,
            settings,
            source=source,
            tables=tables,
            take_over=take_over,
            on_schema_change=on_schema_change,
            wait=wait,
        )
        with ExitStack() as undo:
            undo.callback(_forget_secrets, context, registry, name, kept)
            with opened_sink(entry) as sink:
                say("checking the store")
                captured, left = asked(sink, entry, captured, skip=skip_unfit, again=again)
                refuse_unfit(left.findings, SinkError, "SINK_UNFIT")
                for table in left.unfit:
                    say(f"leaving {table} out, which the store refuses")
                schemas = [table.schema for table in captured]
                entry.tables = {table.topic: dict(sink.target(table.schema).facts) for table in captured}
                refuse_shared(registry, entry)
                refuse_own(context, name, sink, schemas)
                say(f"creating {len(captured)} targets")
                new = {schema.table for schema in missing(sink, schemas)}
                undo.callback(remove_made, context, entry, captured)
                _seal(context, registry, entry, captured)
                note_targets(registry, entry, entry.tables, captured, new)
                create(sink, captured)
                undo.callback(owner_file(context, name).unlink, missing_ok=True)
                begin(context, name, sink, captured, take_over=take_over, say=say)
            # Before the marks: a run that ends in between is among these.
            unread = dict.fromkeys(being_read(registry, origin.name) & entry.tables.keys(), 0)
            passed = marks_to_pass(registry, origin.name, captured)
            lost = trimmed(Kafka(context.kafka_bootstrap), captured, passed)
            # What a run has shown to be gone is removed at the end; until then it is not whole.
            entry.incomplete = {
                **unread,
                **{topic: max(told.marks) for topic, told in passed.items()},
                **lost,
            }
            entry.incomplete_ms = dict.fromkeys(entry.incomplete, registry.moment(origin.name))
            # Before the registration: one whose answer is lost may have been made.
            undo.callback(_unregister, registry, entry, captured, new)
            _register(registry, entry, undo)
            say("starting to apply")
            if spec_path(context, name).exists():
                say("stopping a query of that name of which the registry knows nothing")
                withdraw(context, name)
            discard_run(context, name)
            undo.callback(discard_run, context, name)
            undo.callback(withdraw, context, name)
            _refuse_other_life(registry, captured)
            spec = pipeline_of(context, origin, entry, captured).model_copy(update={"swept": passed})
            write_private(spec_path(context, name), spec.model_dump_json())
            note(registry, entry, Adding.STARTED)
            ensure_engine(context)
            if wait:
                wait_running(context, name)
            swept = [table for table in captured if table.topic not in lost]
            try:
                sweep_new_sink(context, registry, entry, swept, say)
            except SinkError as error:
                if error.code == "SINK_AT_REST":  # it is removed now, so it cannot be resumed
                    error.hint = "Run the same command again."
                raise
            undo.pop_all()
        _added(registry, entry)
        return entry, list(left.findings)


def _gone_on_with(
    context: Context,
    registry: Registry,
    entry: SinkEntry,
    captured: Sequence[SourceTableEntry],
    say: Say,
    *,
    wait: bool,
) -> SinkEntry:
    """Wait for what a killed command has started, and sweep it. What fails stays: it may be in use."""
    say("going on with what a command that was killed has started")
    ensure_engine(context)
    if wait:
        wait_running(context, entry.name)
    # What Kafka has dropped since may have been applied; a sweep would not know.
    passed = marks_to_pass(registry, entry.source, captured)
    lost = trimmed(Kafka(context.kafka_bootstrap), captured, passed)
    swept = [table for table in captured if table.topic not in lost]
    sweep_new_sink(context, registry, entry, swept, say)
    _added(registry, entry)
    return entry


def _added(registry: Registry, entry: SinkEntry) -> None:
    note(registry, entry, None)
    registry.note(f"sink {entry.name}", "added", kind=entry.kind, source=entry.source)


def _register(registry: Registry, entry: SinkEntry, undo: ExitStack) -> None:
    """Register a sink, to be undone; when another has the name now, nothing is: it may be that one's."""
    with registry.begin() as session:
        if session.get(SinkEntry, entry.name) is not None:
            undo.pop_all()
            raise sink_exists(entry.name)
        refuse_going(session.get(SourceEntry, entry.source), entry.source)
        session.add(entry)
        settled(session, entry.name, entry.tables)


def _unregister(
    registry: Registry, entry: SinkEntry, tables: Sequence[SourceTableEntry], new: Collection[TableId]
) -> None:
    """Forget a registration that is to be taken back; its targets are noted as begun until they are gone."""
    note_targets(registry, entry, entry.tables, tables, new)
    unregister(registry, entry.name)


def _seal(
    context: Context, registry: Registry, entry: SinkEntry, captured: Sequence[SourceTableEntry]
) -> None:
    """Put secrets into files, and first a note of the sink, so that files of a killed command have a name."""
    given = entry.settings
    if secret := kinds.secret_names(entry.kind) & given.keys():
        entry.settings = {name: value for name, value in given.items() if name not in secret}
        note_targets(registry, entry, entry.tables, captured, ())
    entry.settings = seal(context, entry.name, entry.kind, given)


def _forget_secrets(context: Context, registry: Registry, name: str, kept: Collection[Path]) -> None:
    """Remove the files that a refused command has made, unless its targets can only be reached with them."""
    if name not in begun_sinks(registry):
        forget(context, name, but=kept)


def _refuse_other_life(registry: Registry, captured: Sequence[SourceTableEntry]) -> None:
    """Refuse to apply topics that were made anew since the command began.

    Raises:
        SourceError: With code ``SOURCE_RECOVERED``.
    """
    for table in captured:
        now = {known.topic: known for known in registry.source(table.source).tables}.get(table.topic)
        if now is None or (now.epoch, now.topic_id) != (table.epoch, table.topic_id):
            raise SourceError(
                f"Source {table.source} was recovered or changed meanwhile.",
                code="SOURCE_RECOVERED",
                hint="Run the same command again once `headrace lag` shows the source as streaming.",
            )


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


def pause(context: Context, name: str) -> None:
    """Stop applying; changes wait in Kafka.

    Raises:
        SinkError: When its pipeline is gone or damaged (``PIPELINE_GONE``, ``PIPELINE_DAMAGED``).
    """
    _set_paused(context, name, True)


def resume(context: Context, name: str, *, take_over: bool = False) -> None:
    """Apply on, at once also after a failure; starts the engine when it does not run.

    With ``take_over`` any other writer is stopped; tables that another installation has written to are
    ``resync_required`` until a recovery.
    """
    registry = Registry(context.registry)
    entry = registry.sink(name)
    remake_damaged(context, registry, entry, tables_of(registry, entry))
    if take_over:
        with opened_sink(entry) as sink:
            take_back(context, registry, entry, tables_of(registry, entry), sink)
    _set_paused(context, name, False)
    progress = read_progress(context.progress, name)
    if progress is not None and progress.state == "failed":
        with suppress(FileNotFoundError):  # removed meanwhile
            os.utime(spec_path(context, name))  # the engine takes up a file that has changed at once
    ensure_engine(context)


def _set_paused(context: Context, name: str, paused: bool) -> None:
    registry = Registry(context.registry)
    origin = origin_of(context, registry.source(registry.sink(name).source))
    with worked_on(context, name) as others_work:
        # Who withheld the query and is at work no more has died before it could let it go on.
        given = {} if others_work or paused else {"withheld": False}
        with told_of(name):
            before = rewrite(context, name, lambda _: {"paused": paused, "origin": origin, **given})
    if before.paused != paused:
        registry.note(f"sink {name}", "paused" if paused else "resumed")
