"""A streaming query: Kafka's topics in, one function per micro-batch out."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.config.kafka import KafkaAddress
from headrace.config.pipeline import PipelineSpec
from spark_jobs.batch import Batches

__all__ = ["start_query"]


def _source(session: SparkSession, spec: PipelineSpec, topics: Sequence[str]) -> DataFrame:
    return (
        session.readStream.format("kafka")
        .options(**KafkaAddress.parse(spec.kafka_bootstrap).spark())
        # Spark reads none of them when one does not exist.
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        # Topics that went back are found by our own look, table by table; Spark would stop them all.
        .option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", spec.max_offsets_per_trigger)
        .option("kafka.isolation.level", "read_committed")
        # Behind the last record stands a commit marker that is never delivered; the reader waits a
        # whole fetch for it in every batch.
        .option("kafka.fetch.max.wait.ms", "5")
        .load()
    )


def start_query(session: SparkSession, spec: PipelineSpec, batches: Batches) -> StreamingQuery:
    """Start the sink's query where its checkpoint stands, or at the beginning of the topics."""
    session.sparkContext.setLocalProperty("spark.scheduler.pool", spec.sink)
    return (
        _source(session, spec, batches.topics)
        .writeStream.queryName(spec.sink)
        .option("checkpointLocation", str(spec.checkpoint))
        .trigger(processingTime="0 seconds")
        .foreachBatch(batches.run)
        .start()
    )
