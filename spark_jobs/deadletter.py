"""Rejected records, whole, in Avro object container files: one file per batch that rejected any."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fastavro
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

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


def _by_partition(identities: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int], list[int]]:
    grouped: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in identities:
        grouped.setdefault((topic, partition), []).append(offset)
    return grouped


def quarantine(
    folder: Path, sink: str, batch_id: int, kafka: DataFrame, rejects: Iterable[Mapping[str, Any]]
) -> Path:
    """Write the raw records behind ``rejects`` to one file, durably, and return its path.

    The name depends on the batch alone, so a batch that runs again replaces its file and every
    record stands once per identity (topic, partition, offset).
    """
    why = {(r["topic"], r["partition"], r["offset"]): r for r in rejects}
    columns = kafka.select("topic", "partition", "offset", "key", "value")
    raw = [
        row
        for (topic, partition), offsets in _by_partition(why).items()
        for row in columns.where(
            (f.col("topic") == topic) & (f.col("partition") == partition) & f.col("offset").isin(offsets)
        ).collect()
    ]
    letters = [
        {
            "sink": sink,
            **why[(r.topic, r.partition, r.offset)],
            "key": None if r.key is None else bytes(r.key),
            "value": None if r.value is None else bytes(r.value),
        }
        for r in raw
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{sink}-{batch_id:012d}.avro"
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as stream:
        fastavro.writer(stream, SCHEMA, letters, codec="deflate")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    return path
