"""The second step: every sink's query is given the new life, whatever is wrong with one of its targets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headrace.config.pipeline import PipelineSpec, load_pipeline, write_private
from headrace.control.opened import opened_sink, tables_of
from headrace.control.pipelines import discard_run, pipeline_of, rewrite, spec_path, withhold
from headrace.control.recovery.job import Job
from headrace.control.recovery.left_out import Why, left_out, refusal
from headrace.control.recovery.new_life import note_held
from headrace.control.registry import SinkEntry, SourceTableEntry
from headrace.control.runner import ensure_engine
from headrace.control.runs.shadowing import discard_of_sink
from spark_jobs.troubles import Troubles

__all__ = ["hand_over"]


def hand_over(job: Job) -> None:
    """Give every sink's query the new life, from its beginning; a sink that has it already is left alone.

    A sink that does not take it, such as one whose store does not answer, is left with its query stopped.
    """
    sinks = job.sinks
    for sink in sinks:
        with job.apart(sink.name):
            _give(job, sink)
    if sinks:
        ensure_engine(job.context)


def _give(job: Job, sink: SinkEntry) -> None:
    context, tables = job.context, tables_of(job.registry, sink)
    path, spec = spec_path(context, sink.name), pipeline_of(context, job.source, sink, tables)
    if path.exists():
        _make_readable(path, spec)
        if _lives(load_pipeline(path)) == _lives(spec):
            return
        withhold(context, sink.name)  # also where a recovery goes on that was interrupted
    note_held(job, sink)
    discard_of_sink(context, sink.name)
    refused = _made_ready(job, sink, tables)
    job.leave_out(sink.name, refused)
    discard_run(context, sink.name)
    _close(job, spec, refused)
    if path.exists():
        rewrite(context, sink.name, partial(_anew, spec))
    else:
        write_private(path, spec.model_dump_json())


def _make_readable(path: Path, spec: PipelineSpec) -> None:
    """Replace a damaged file by one that has the query rest; it tells of no life, for none is given yet."""
    try:
        load_pipeline(path)
    except ValueError:
        tables = tuple(table.model_copy(update={"topic_id": ""}) for table in spec.tables)
        resting = spec.model_copy(update={"tables": tables, "withheld": True})
        write_private(path, resting.model_dump_json())


def _lives(spec: PipelineSpec) -> set[tuple[str, str, int]]:
    return {(table.topic, table.topic_id, table.epoch) for table in spec.tables}


def _made_ready(job: Job, sink: SinkEntry, tables: list[SourceTableEntry]) -> dict[str, Why]:
    """Make the sink's targets ready for the new life; return topic → why, for those that refuse."""
    refused: dict[str, Why] = {}
    with opened_sink(sink) as store:
        # First: what others have done to a target's rows is no matter, each is replaced or removed.
        store.forget([table.topic for table in tables])
        for table in tables:
            why = refusal(partial(store.prepare, table.schema))
            if why is not None:
                refused[table.topic] = why
                job.say(f"{sink.name}: {table.schema.table} is left out: {why[1]}")
    return refused


def _close(job: Job, spec: PipelineSpec, refused: Mapping[str, Why]) -> None:
    """Have the query apply nothing to targets that refused: of other columns, each row would be a letter."""
    source, troubles = job.source, Troubles(spec)
    for table in source.tables:
        if table.topic in refused:
            one = left_out(source, spec.sink, table, refused[table.topic])
            troubles.close(one.table, {"code": one.code, "message": one.reason, "hint": one.remedy})


def _anew(spec: PipelineSpec, before: PipelineSpec) -> dict[str, Any]:
    """Return every field of a pipeline, with what a person has said of the one before."""
    return dict(spec.model_copy(update={"paused": before.paused}))
