"""Apply in the driver: small batches, and sinks that commit a table at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.observe.failpoints import hit
from spark_jobs.apply import apply_records, carry_of, holds_of, sink_of
from spark_jobs.decode import decoders, records
from spark_jobs.report import Report

__all__ = ["SMALL", "apply_in_driver"]

SMALL = 2_000
"""Up to so many records one task reads them all, and the way to an executor's Python is not worth it."""

_THREADS = 4
_ORDER = [("partition", "ascending"), ("offset", "ascending")]


def apply_in_driver(envelopes: DataFrame, pipeline: str, batch_id: int, size: int) -> list[Report]:
    """Collect the batch once, in Arrow, and apply each table's part; one report per table."""
    # One task that reads several partitions costs less than a task for each; a lake's batch may be large.
    small = size <= SMALL
    table = (envelopes.coalesce(1) if small else envelopes).toArrow()
    sink, tables = sink_of(pipeline)
    hit("batch.decoded", sink.kind)
    carry = carry_of(pipeline, batch_id)

    def one(topic: str) -> Report:
        part: pa.Table = table.filter(pc.equal(table["topic"], topic)).sort_by(_ORDER)
        by_topic = decoders(pipeline)
        decoded = records(part.to_batches(), by_topic)
        return apply_records(decoded, sink, tables, carry, holds_of(pipeline)).drift(tables, by_topic)

    topics = table["topic"].unique().to_pylist()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="table") as pool:
        return list(pool.map(one, topics))
