"""A store that has gone back in time is brought forward again: from its own progress, out of Kafka.

A store that was restored from a backup, or that lost its last writes with its machine, holds less than the
query's checkpoint says. The progress beside the data went back with the data, so it tells from where.
"""

from __future__ import annotations

from typing import Any

from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import SinkError
from headrace.model.position import Position
from sinks.base import Progress, Sink
from spark_jobs.offsets import Ranges, Settled
from spark_jobs.report import Report

__all__ = ["lost", "sweep_again"]


def lost(stored: Progress, settled: Settled) -> Ranges:
    """Return what a store that says to have ``stored`` no longer holds of what was ``settled``."""
    return {
        place: (stored.get(place, -1) + 1, end + 1)
        for place, end in settled.items()
        if stored.get(place, -1) < end
    }


def sweep_again(spec: PipelineSpec, sink: Sink, report: Report, ranges: Ranges) -> dict[str, dict[str, Any]]:
    """Remove what the last complete run swept, where records from before its end have been applied again.

    Returns:
        Table → error, for those whose target refused.
    """
    refused: dict[str, dict[str, Any]] = {}
    for table in spec.tables if spec.swept else ():
        run, schema = spec.swept.get(table.topic), table.schema_
        for partition, (mark, end) in enumerate(zip(run.marks, run.ends, strict=True) if run else ()):
            begin, after = ranges.get((table.topic, partition), (0, -1))
            if not begin < end <= after:
                continue
            position = Position(table.epoch, mark, partition)
            try:
                sink.truncate(schema, position)
                report.holds.empty(str(schema.table), position)
            except SinkError as error:
                if error.table is None:
                    raise
                refused[str(schema.table)] = {**error.as_dict(), "retry": error.retry.value}
    return refused
