"""A table whose target has another shape than the table: filled anew beside it, and put in its place at once.

A pipeline of its own fills the shadow from the topic's beginning. The old target serves readers until the
shadow has caught up and is swept; then the sink rests for a moment, the shadow takes the place of the target,
and the sink goes on with the table as it is now.
"""

from __future__ import annotations

import shutil
from contextlib import closing, suppress

from headrace.config.pipeline import PipelineSpec, TableSpec, load_pipeline, write_private
from headrace.config.request import Request
from headrace.control.claims import owner_file
from headrace.control.context import Context
from headrace.control.desk import leave
from headrace.control.pipelines import discard_run, rewrite, spec_path, withdraw, withheld, worked_on
from headrace.control.registry import Registry, ResnapshotEntry, SinkEntry, SourceTableEntry
from headrace.control.runs.repository import (
    OPEN,
    Phase,
    all_of,
    change,
    is_swept,
    note_litter,
    refuse_former,
    run_of,
)
from headrace.control.runs.settling import pipeline_of, shadow_of, shadowed
from headrace.model.errors import HeadraceError, SinkError
from headrace.observe.failpoints import hit
from sinks import registry as kinds
from sinks.base import Sink
from sinks.shadow import SHADOW
from spark_jobs.held import load_holds, save_holds

__all__ = [
    "clear_away",
    "discard",
    "discard_of_run",
    "discard_of_sink",
    "fill",
    "give_up",
    "let_go_on",
    "switch",
]


def fill(context: Context, run: ResnapshotEntry, entry: SinkEntry, table: SourceTableEntry) -> None:
    """Have the engine fill the shadow; when it does already, it goes on. While others are at work, wait."""
    name = pipeline_of(run, entry.name, table)
    if spec_path(context, name).exists():
        return
    with worked_on(context, entry.name) as others_work:
        # Who removes the sink meanwhile removes its shadows first, and must miss none.
        if not others_work and spec_path(context, entry.name).exists():
            _begin(context, run, entry, table)


def _begin(context: Context, run: ResnapshotEntry, entry: SinkEntry, table: SourceTableEntry) -> None:
    name = pipeline_of(run, entry.name, table)
    with closing(_open(run, entry, table)) as shadow:
        # Who filled it before may have died in the middle of the switch: what is left of it is half a table.
        shadow.drop(table.schema)
        shadow.forget([table.topic])
        shadow.prepare(table.schema)
    hit("run.begun_shadow", entry.kind)
    main = load_pipeline(spec_path(context, entry.name))
    discard_run(context, name)
    spec = main.model_copy(
        update={
            "sink": name,
            "settings": {**main.settings, SHADOW: shadow_of(run, table)},
            "tables": tuple(_now(known, table) for known in main.tables if known.topic == table.topic),
            "checkpoint": context.checkpoints / name,
            "dead_letters": context.dead_letters / name,
            "owner": owner_file(context, name),
            "paused": False,
            "withheld": False,
            "swept": {},
            "whole_from": {table.topic: tuple(run.plan["marks"][table.topic])},
        }
    )
    write_private(spec_path(context, name), spec.model_dump_json())


def switch(context: Context, run: ResnapshotEntry, entry: SinkEntry, table: SourceTableEntry) -> None:
    """Put the shadow in the place of the target, and have the sink go on with the table as it is now."""
    name, registry = pipeline_of(run, entry.name, table), Registry(context.registry)
    change(registry, run.id, {"switching": entry.name})
    with withheld(context, entry.name, doing=f"run {run.id}, which puts a target in its place"):
        # A recovery that was waited for has ended the run, and its shadow is of the life before.
        refuse_former(run_of(registry, run.id))
        hit("run.withheld", entry.kind)
        withdraw(context, name)  # not before: who removes the sink, or recovers, finds the shadow by it
        hit("run.withdrawn", entry.kind)
        # The table as it is now: its columns may have been followed meanwhile.
        table = next(t for t in registry.source(entry.source).tables if t.topic == table.topic)
        with closing(_open(run, entry, table)) as shadow:
            shadow.switch(table.schema)
        hit("run.moved", entry.kind)

        def followed(spec: PipelineSpec) -> dict[str, object]:
            return {"tables": tuple(_switched(_now(known, table), table.topic) for known in spec.tables)}

        rewrite(context, entry.name, followed)
        hit("run.rewritten", entry.kind)
        _take_over_rejects(context, name, entry.name, str(table.schema.table))
    change(registry, run.id, {"switching": ""})
    leave(context, entry.name, Request())  # so that it tells how many rows are behind now
    _clear(context, name)


def let_go_on(context: Context, run: ResnapshotEntry) -> None:
    """Let the sink go on that a process of the run had rest for a switch, and died."""
    sink = run.plan.get("switching", "")
    if sink and spec_path(context, sink).exists():
        with worked_on(context, sink) as others_work:
            if not others_work:
                rewrite(context, sink, lambda _: {"withheld": False})


def discard(context: Context, run: ResnapshotEntry, entry: SinkEntry, table: SourceTableEntry) -> None:
    """Give the shadow up, also one of which half is gone already; the old target serves on.

    What a store that does not answer keeps of it is noted, see :func:`clear_away`.

    Raises:
        SinkError: When the engine does not let go of it (``SINK_BUSY``).
    """
    name = pipeline_of(run, entry.name, table)
    if spec_path(context, name).exists():
        withdraw(context, name)
    try:
        _drop(run, entry, table)
    except SinkError:
        note_litter(Registry(context.registry), run.id, entry.name, table.topic, left=True)
    _clear(context, name)


def clear_away(context: Context, source: str) -> None:
    """Remove what runs of a source have left of shadows in stores that did not answer then."""
    registry = Registry(context.registry)
    sinks = {entry.name: entry for entry in registry.sinks(source)}
    tables = {table.topic: table for table in registry.source(source).tables}
    for run in all_of(registry, source):
        for sink, topic in run.plan.get("litter", ()):
            if sink in sinks and topic in tables:
                try:
                    _drop(run, sinks[sink], tables[topic])
                except HeadraceError:
                    continue
            note_litter(registry, run.id, sink, topic, left=False)


def _drop(run: ResnapshotEntry, entry: SinkEntry, table: SourceTableEntry) -> None:
    with closing(_open(run, entry, table)) as shadow:
        shadow.drop(table.schema)
        shadow.forget([table.topic])


def give_up(context: Context, run: ResnapshotEntry) -> None:
    """Give up every shadow of a run that has not taken its target's place.

    Raises:
        SinkError: When the engine does not let go of one (``SINK_BUSY``).
    """
    registry = Registry(context.registry)
    for entry in registry.sinks(run.source):
        _give_up_at(context, registry, run, entry)


def _give_up_at(context: Context, registry: Registry, run: ResnapshotEntry, entry: SinkEntry) -> None:
    for table in registry.source(run.source).tables:
        if shadowed(run, entry.name, table.topic) and not is_swept(run, entry.name, table):
            discard(context, run, entry, table)


def discard_of_sink(context: Context, sink: str) -> None:
    """Give up every shadow at a sink, whatever became of its run, while nobody begins another.

    Raises:
        SinkError: When the engine does not let go of one (``SINK_BUSY``).
    """
    registry = Registry(context.registry)
    entry = registry.sink(sink)
    for run in all_of(registry, entry.source):
        if Phase(run.phase) in OPEN:  # one that died in the middle of a switch has left no pipeline
            _give_up_at(context, registry, run, entry)
    _discard_named(context, f"{sink}.r*t*")


def discard_of_run(context: Context, run: str) -> None:
    """Give up every shadow of a run that the registry knows no more, or not where its topics were.

    Raises:
        SinkError: When the engine does not let go of one (``SINK_BUSY``).
    """
    _discard_named(context, f"*.r{run}t*")


def _discard_named(context: Context, names: str) -> None:
    for path in sorted(context.pipelines.glob(f"{names}.json")):
        try:
            spec = load_pipeline(path)
        except (OSError, ValueError):
            continue  # gone since it was listed
        withdraw(context, spec.sink)
        with suppress(HeadraceError), closing(_shadow_of(spec)) as shadow:
            for table in spec.tables:
                shadow.drop(table.schema_)
            shadow.forget([table.topic for table in spec.tables])
        _clear(context, spec.sink)


def _shadow_of(spec: PipelineSpec) -> Sink:
    return kinds.build(spec.kind, spec.sink.rpartition(".")[0], spec.settings)


def _now(known: TableSpec, table: SourceTableEntry) -> TableSpec:
    return known.model_copy(update={"table": table.table}) if known.topic == table.topic else known


def _take_over_rejects(context: Context, filler: str, sink: str, table: str) -> None:
    """Have the sink know the rows that the shadow's store refused, in place of those that the old one did."""
    holds = load_holds(context.checkpoints / sink)
    filled = load_holds(context.checkpoints / filler).held
    holds.held.pop(table, None)
    if table in filled:
        holds.held[table] = filled[table]
    save_holds(context.checkpoints / sink, holds)
    letters = context.dead_letters / sink
    for path in sorted((context.dead_letters / filler).glob("*.avro")):
        letters.mkdir(parents=True, exist_ok=True)
        path.replace(letters / path.name)


def _switched(known: TableSpec, topic: str) -> TableSpec:
    """Say that the table has another target, so that nobody takes it for one that was made anew."""
    return known.model_copy(update={"target": known.target + 1}) if known.topic == topic else known


def _open(run: ResnapshotEntry, entry: SinkEntry, table: SourceTableEntry) -> Sink:
    return kinds.build(entry.kind, entry.name, {**entry.settings, SHADOW: shadow_of(run, table)})


def _clear(context: Context, name: str) -> None:
    discard_run(context, name)
    owner_file(context, name).unlink(missing_ok=True)
    shutil.rmtree(context.dead_letters / name, ignore_errors=True)
