"""Apply in Spark's tasks: each reads some of the batch's ranges and writes what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import cache, partial

from pyspark.sql import SparkSession

from connectors.debezium import Decoder
from headrace.config.pipeline import PipelineSpec
from headrace.model.change import Record
from spark_jobs.apply import Pause, apply_records, carry_of, holds_of, sink_of
from spark_jobs.decode import decoders
from spark_jobs.offsets import Ranges
from spark_jobs.reader import Raw, Reader, Unreadable
from spark_jobs.report import Report
from spark_jobs.session import share_of_tasks

__all__ = ["apply_in_tasks", "shared_out"]

_UNREAD = b""
_PATIENCE_S = 3.0
"""A new worker has to connect first, and on a busy machine that takes its time."""

_MUCH_BYTES = 32 << 20
"""A row takes some times as much when it is decoded, and the last rows are still being written meanwhile."""


def apply_in_tasks(session: SparkSession, pipeline: str, ranges: Ranges) -> list[Report]:
    """Apply a batch in its share of the tasks that run at once; one report each.

    Raises:
        Unreadable: When a task could not read all of its ranges; others may have applied theirs.
    """
    shares = shared_out(ranges, share_of_tasks(session))
    tasks = session.sparkContext.parallelize(shares, len(shares)).mapPartitions(partial(_apply, pipeline))
    told: list[bytes] = tasks.collect()
    if _UNREAD in told:
        raise Unreadable
    return [Report.load(report) for report in told]


def shared_out(ranges: Ranges, most: int) -> list[Ranges]:
    """Return the ranges in at most so many shares of about the same number of records."""
    shares: list[dict[tuple[str, int], tuple[int, int]]] = [{} for _ in range(min(most, len(ranges)))]
    sizes = [0] * len(shares)
    for place, (begin, end) in sorted(ranges.items(), key=lambda item: item[1][0] - item[1][1]):
        least = sizes.index(min(sizes))
        shares[least][place] = (begin, end)
        sizes[least] += end - begin
    return list(shares)


def _apply(pipeline: str, shares: Iterator[Ranges]) -> Iterator[bytes]:
    spec = PipelineSpec.model_validate_json(pipeline)
    sink, tables = sink_of(pipeline)
    by_topic = decoders(pipeline)
    for ranges in shares:
        try:
            with closing(_reader(spec.kafka_bootstrap, spec.sink).stream(ranges)) as found:
                decoded = _decoded(found, by_topic)
                carry = carry_of(pipeline, {place: begin for place, (begin, _) in ranges.items()})
                report = apply_records(decoded, sink, tables, carry, holds_of(pipeline))
        except Unreadable:
            yield _UNREAD
        else:
            yield report.drift(tables, by_topic).dump()


def _decoded(found: Iterable[Raw], by_topic: Mapping[str, Decoder]) -> Iterator[Record | Pause]:
    decode = {topic: decoder.decode_raw for topic, decoder in by_topic.items()}
    size = 0
    for raw in found:
        yield decode[raw.topic](raw, raw.key, raw.value)
        size += len(raw.value or b"")
        if size > _MUCH_BYTES:
            yield Pause()
            size = 0


@cache
def _reader(bootstrap: str, sink: str) -> Reader:
    """Return this process' reader for a sink; a task has its process for itself."""
    return Reader(bootstrap, f"headrace-{sink}", patience=_PATIENCE_S)
