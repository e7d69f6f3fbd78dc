"""Sets rejected records aside, whole: as they are in Kafka, read again from there."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from headrace.config.kafka import KafkaAddress
from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import SinkError
from headrace.model.letter import Letter, LetterId
from spark_jobs.letters import write_letters

__all__ = ["quarantine"]

_FIRST, _MOST = 100, 10_000
"""So many records are read at first, and at most at a time."""

_PART_BYTES = 32 << 20

_Place = tuple[str, int, int]


def _raw(session: SparkSession, bootstrap: str, wanted: Iterable[_Place]) -> list[Row]:
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
        .options(**KafkaAddress.parse(bootstrap).spark())
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(first))
        .option("endingOffsets", json.dumps(after))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select("topic", "partition", "offset", "key", "value", "headers")
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
    session: SparkSession, spec: PipelineSpec, batch: str, rejects: Iterable[Mapping[str, Any]]
) -> None:
    """Write the raw records behind ``rejects`` to the batch's file, durably; remove it when there are none.

    The name depends on the query and the batch alone, so a batch that runs again replaces its file and
    every record stands once per identity.

    Raises:
        SinkError: When Kafka gave fewer records than were rejected (``DEAD_LETTER_LOST``).
        EnvironmentError_: When the disk refuses.
    """
    path = spec.dead_letters / f"{_query(spec.checkpoint)}-{batch}.avro"
    why = {(r["topic"], r["partition"], r["offset"]): r for r in rejects}
    if not why:
        path.unlink(missing_ok=True)
        return
    write_letters(path, _letters(session, spec, why))


def _letters(
    session: SparkSession, spec: PipelineSpec, why: Mapping[_Place, Mapping[str, Any]]
) -> Iterator[Letter]:
    """Yield the letters, a bounded number of bytes at a time."""
    tables = {table.topic: table for table in spec.tables}
    now = int(time.time() * 1000)
    places, count = sorted(why), _FIRST
    while places:
        part, places = places[:count], places[count:]
        raw = _raw(session, spec.kafka_bootstrap, part)
        if len(raw) != len(part):
            lost = sorted({str(why[place]["table"]) for place in part})
            raise SinkError(
                f"Kafka gave back {len(raw)} of {len(part)} rejected records, so they cannot be set aside.",
                code="DEAD_LETTER_LOST",
                hint=f"If its retention has taken them: headrace resnapshot SOURCE {shlex.join(lost)}",
            )
        size = sum(len(record.value or b"") for record in raw)
        count = max(1, min(_MOST, _PART_BYTES * len(part) // max(size, 1)))
        for record in raw:
            reject = why[record.topic, record.partition, record.offset]
            table = tables[record.topic]
            yield Letter(
                id=LetterId(record.topic, table.epoch, record.partition, record.offset),
                sink=spec.sink,
                table=reject["table"],
                code=reject["code"],
                reason=reject["reason"],
                row=reject["row"],
                at_ms=now,
                schema=json.dumps(table.table),
                key=_bytes(record.key),
                value=_bytes(record.value),
                headers=tuple((header.key, _bytes(header.value)) for header in record.headers or ()),
            )


def _query(checkpoint: Path) -> str:
    """Return the identity of the query; a checkpoint made anew counts its batches from nought again."""
    return str(json.loads((checkpoint / "metadata").read_text().splitlines()[-1])["id"])


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
