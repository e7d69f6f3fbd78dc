"""Rejected records, whole, in Avro object container files: one file per batch that rejected any."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import fastavro
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import SinkError

__all__ = ["SCHEMA", "quarantine"]

SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "DeadLetter",
        "namespace": "headrace",
        "fields": [
            {"name": "sink", "type": "string"},
            {"name": "topic", "type": "string"},
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "code", "type": "string"},
            {"name": "reason", "type": "string"},
            {"name": "key", "type": ["null", "bytes"]},
            {"name": "value", "type": ["null", "bytes"]},
        ],
    }
)


def _raw(session: SparkSession, bootstrap: str, wanted: Iterable[tuple[str, int, int]]) -> list[Row]:
    """Read some records again from Kafka, whole.

    Raises:
        PySparkException: When Kafka no longer holds them all; the batch then runs again.
    """
    offsets: dict[str, dict[str, list[int]]] = {}
    for topic, partition, offset in wanted:
        offsets.setdefault(topic, {}).setdefault(str(partition), []).append(offset)
    first = {t: {p: min(numbers) for p, numbers in by.items()} for t, by in offsets.items()}
    after = {t: {p: max(numbers) + 1 for p, numbers in by.items()} for t, by in offsets.items()}
    assigned = {topic: [int(partition) for partition in by] for topic, by in offsets.items()}
    records = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(first))
        .option("endingOffsets", json.dumps(after))
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select("topic", "partition", "offset", "key", "value")
    )
    chosen = reduce(
        or_,
        (
            (f.col("topic") == topic) & (f.col("partition") == int(partition)) & f.col("offset").isin(numbers)
            for topic, by in offsets.items()
            for partition, numbers in by.items()
        ),
    )
    return records.where(chosen).collect()


def quarantine(
    session: SparkSession, spec: PipelineSpec, batch_id: int, rejects: Iterable[Mapping[str, Any]]
) -> Path:
    """Write the raw records behind ``rejects`` to one file, durably, and return its path.

    The name depends on the batch alone, so a batch that runs again replaces its file and every
    record stands once per identity (topic, partition, offset).

    Raises:
        SinkError: When Kafka gave fewer records than were rejected (``DEAD_LETTER_LOST``).
    """
    why = {(r["topic"], r["partition"], r["offset"]): r for r in rejects}
    letters = [
        {
            "sink": spec.sink,
            **why[(r.topic, r.partition, r.offset)],
            "key": None if r.key is None else bytes(r.key),
            "value": None if r.value is None else bytes(r.value),
        }
        for r in _raw(session, spec.kafka_bootstrap, why)
    ]
    if len(letters) != len(why):
        raise SinkError(
            f"Kafka gave back {len(letters)} of {len(why)} rejected records, so they cannot be set aside.",
            code="DEAD_LETTER_LOST",
            hint="If its retention has taken them: headrace resnapshot.",
        )
    folder = spec.dead_letters
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{spec.sink}-{batch_id:012d}.avro"
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as stream:
        fastavro.writer(stream, SCHEMA, letters, codec="deflate")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    return path
