"""Kafka records → envelope columns in the JVM, → typed changes in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from connectors.debezium import ENVELOPE, Decoder, streamed
from headrace.config.pipeline import PipelineSpec, SchemaPolicy, TableSpec
from headrace.model.change import Ignored, Origin, Record
from spark_jobs.per_pipeline import PerPipeline

__all__ = ["decoders", "envelopes", "records"]


def envelopes(kafka: DataFrame, tables: Sequence[TableSpec]) -> DataFrame:
    """Split Kafka records into the columns :func:`records` reads; one parse, no shuffle.

    ``key`` is told where the row does not tell it, and where it has other columns than its table's.
    """
    known = f.create_map(*chain.from_iterable((f.lit(t.topic), _names(t.schema_.key)) for t in tables))
    told = f.array_sort(f.json_object_keys(f.col("key").cast("string")))
    envelope = f.from_json(f.col("value").cast("string"), ENVELOPE)
    return kafka.select(
        "topic", "partition", "offset", envelope.alias("e"), f.col("value").isNull().alias("empty"), "key"
    ).select(
        "topic",
        "partition",
        "offset",
        f.col("e.op").alias("op"),
        f.col("e.before").alias("before"),
        f.col("e.after").alias("after"),
        f.col("e.source.lsn").alias("lsn"),
        f.col("e.source.txId").alias("tx"),
        f.col("e.source.ts_ms").alias("committed_ms"),
        f.col("e.source.snapshot").alias("snapshot"),
        "empty",
        f.when(
            ~f.col("empty") & (f.col("e.op").isNull() | (told != known[f.col("topic")])), f.col("key")
        ).alias("key"),
    )


def _names(key: Sequence[str]) -> Column:
    return f.array(*map(f.lit, sorted(key)))


def _decoders(spec: PipelineSpec) -> dict[str, Decoder]:
    strict = spec.on_schema_change is SchemaPolicy.EXCEPTION
    return {t.topic: Decoder(t.schema_, t.epoch, spec.placeholder, strict=strict) for t in spec.tables}


def decoders(pipeline: str) -> dict[str, Decoder]:
    """Return the decoders of a pipeline (its spec as JSON) by topic; built once per process."""
    return _known(pipeline)  # a function, for functions that Spark sends to its workers refer to it


_known = PerPipeline(_decoders)


def records(batches: Iterable[pa.RecordBatch], by_topic: dict[str, Decoder]) -> Iterator[Record]:
    """Yield what each envelope says, in the order of the batches; bad ones as :class:`Poison`."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        decode = {topic: by_topic[topic].decode for topic in set(columns[0])}
        for topic, partition, offset, op, before, after, lsn, tx, committed, snapshot, empty, key in zip(
            *columns, strict=True
        ):
            origin = Origin(topic, partition, offset, lsn, tx, committed, not streamed(snapshot))
            yield Ignored(origin, "tombstone") if empty else decode[topic](origin, op, before, after, key)
