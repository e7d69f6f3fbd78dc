"""A store that has gone back in time is brought forward again: from its own progress, out of Kafka.

A store that was restored from a backup, or that lost its last writes with its machine, holds less than the
query's checkpoint says. The progress beside the data went back with the data, so it tells from where.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.config.kafka import KafkaAddress
from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import SinkError
from headrace.model.position import Position
from sinks.base import Progress, Sink
from spark_jobs.decode import envelopes
from spark_jobs.offsets import Ranges
from spark_jobs.report import Report
from spark_jobs.settle import Settled

__all__ = ["lost", "parts", "read_again", "sweep_again"]

_log = logging.getLogger("headrace")


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


def parts(gone: Ranges, most: int) -> Iterator[Ranges]:
    """Yield ranges of at most about ``most`` records that together are ``gone``, in order."""
    share = max(1, most // max(1, len(gone)))
    left = dict(gone)
    while left:
        yield {place: (begin, min(end, begin + share)) for place, (begin, end) in left.items()}
        left = {place: (begin + share, end) for place, (begin, end) in left.items() if begin + share < end}


def read_again(session: SparkSession, spec: PipelineSpec, part: Ranges) -> DataFrame:
    """Return the envelopes of some ranges."""
    records = sum(end - begin for begin, end in part.values())
    _log.warning("sink %s reads %d records by way of Spark", spec.sink, records)
    assigned: dict[str, list[int]] = {}
    bounds: tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]] = {}, {}
    for (topic, partition), limits in part.items():
        assigned.setdefault(topic, []).append(partition)
        for bound, offset in zip(bounds, limits, strict=True):
            bound.setdefault(topic, {})[str(partition)] = offset
    found = (
        session.read.format("kafka")
        .options(**KafkaAddress.parse(spec.kafka_bootstrap).spark())
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(bounds[0]))
        .option("endingOffsets", json.dumps(bounds[1]))
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    return envelopes(found, spec.tables)
