"""A sink's pipeline file that is not whole is written anew, from the registry and the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.config.pipeline import SchemaPolicy, load_pipeline, write_private
from headrace.control.context import Context
from headrace.control.pipelines import pipeline_of, spec_path, worked_on
from headrace.control.registry import Registry, SinkEntry, SourceTableEntry
from headrace.control.remedies import read_anew
from headrace.control.runs.passed import swept_at
from headrace.control.verdicts import FIRST_LOAD, REMADE, State, Verdict, record, standing
from spark_jobs.targets import newest_targets

__all__ = ["remake_damaged"]


def remake_damaged(
    context: Context, registry: Registry, entry: SinkEntry, tables: Sequence[SourceTableEntry]
) -> bool:
    """Write the pipeline file of a sink of these tables anew if it is not whole; return whether it was not.

    One that lacks a table is of before the table was taken in, and was put back. The sink goes on where its
    checkpoint ends. Where it ignores changes of columns, only the file knew which columns it has: then its
    tables are to be read anew.
    """
    with worked_on(context, entry.name) as others_work:
        if _is_whole(context, registry, entry, tables, others_work):
            return False
        _remake(context, registry, entry, tables)
    return True


def _is_whole(
    context: Context,
    registry: Registry,
    entry: SinkEntry,
    tables: Sequence[SourceTableEntry],
    others_work: bool,
) -> bool:
    begun = {found.topic for found in standing(registry, entry.source) if found.code == FIRST_LOAD}
    try:
        told = {table.topic for table in load_pipeline(spec_path(context, entry.name)).tables}
    except (FileNotFoundError, ValueError):
        return False
    # Who takes tables out tells the query first.
    return others_work or all(table.topic in told or table.topic in begun for table in tables)


def _remake(
    context: Context, registry: Registry, entry: SinkEntry, tables: Sequence[SourceTableEntry]
) -> None:
    source = registry.source(entry.source)
    spec = pipeline_of(context, source, entry, tables)
    spec = spec.model_copy(
        update={
            "tables": newest_targets(spec.checkpoint, spec.tables),
            "swept": swept_at(registry, entry, tables),
        }
    )
    if SchemaPolicy(entry.on_schema_change) is SchemaPolicy.IGNORE:
        for table in tables:
            reason = "the sink's pipeline file was not whole; which columns it had is not known"
            verdict = Verdict(State.DEGRADED, reason, read_anew(source, [table.schema]))
            record(registry, source, [table.topic], REMADE, verdict, sink=entry.name)
    write_private(spec_path(context, entry.name), spec.model_dump_json())
    registry.note(f"sink {entry.name}", "pipeline written anew")
