"""Ranges of Kafka as Spark reads them: whole with their headers, or where our own reader could not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.config.kafka import KafkaAddress
from spark_jobs.offsets import Ranges, parts
from spark_jobs.reader import Raw

__all__ = ["cut", "parts_by_size", "raw_of", "records_of", "sizes_of", "slices"]

_ORDER = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]

Found = tuple[str, int, int]
"""Topic, partition and offset of a record."""

_LOOKED_AT = 10_000
"""Of so many records the sizes are asked for at a time."""


def records_of(session: SparkSession, bootstrap: str, ranges: Ranges) -> DataFrame:
    """Return the committed records of some ranges, with their headers, as Spark's Kafka source has them.

    What it does raises a PySparkException when Kafka no longer holds them all.
    """
    assigned: dict[str, list[int]] = {}
    bounds: tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]] = {}, {}
    for (topic, partition), limits in ranges.items():
        assigned.setdefault(topic, []).append(partition)
        for bound, offset in zip(bounds, limits, strict=True):
            bound.setdefault(topic, {})[str(partition)] = offset
    return (
        session.read.format("kafka")
        .options(**KafkaAddress.parse(bootstrap).spark())
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(bounds[0]))
        .option("endingOffsets", json.dumps(bounds[1]))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )


def sizes_of(records: DataFrame) -> list[tuple[str, int, int, int]]:
    """Return (topic, partition, offset, bytes) of records, in order; their bytes do not leave the JVM."""
    size = f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))
    found = records.select("topic", "partition", "offset", size.alias("bytes")).toArrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def slices(sizes: Iterable[tuple[str, int, int, int]], most_bytes: int) -> Iterator[list[Found]]:
    """Yield the places of records, in order, so many at a time as have ``most_bytes`` together, or one.

    Args:
        sizes: (topic, partition, offset, bytes) of the records.
        most_bytes: No slice but of a single record goes beyond it.
    """
    piece: list[Found] = []
    held = 0
    for topic, partition, offset, size in sizes:
        if piece and held + size > most_bytes:
            yield piece
            piece, held = [], 0
        piece.append((topic, partition, offset))
        held += size
    if piece:
        yield piece


def cut(part: Ranges, sizes: Iterable[tuple[str, int, int, int]], most_bytes: int) -> Iterator[Ranges]:
    """Yield ranges that together are ``part``, in order, each of about ``most_bytes`` or of one record.

    Args:
        part: Ranges.
        sizes: (topic, partition, offset, bytes) of the records in them, in order.
        most_bytes: No piece but of a single record goes beyond it.
    """
    begins = {place: begin for place, (begin, _) in part.items()}
    for found in slices(sizes, most_bytes):
        ends = {(topic, partition): offset + 1 for topic, partition, offset in found}
        yield {place: (begins[place], end) for place, end in ends.items()}
        begins |= ends
    # Behind the last record may be what is never delivered, such as a commit marker.
    if rest := {place: (begins[place], end) for place, (_, end) in part.items() if begins[place] < end}:
        yield rest


def parts_by_size(session: SparkSession, bootstrap: str, ranges: Ranges, most_bytes: int) -> Iterator[Ranges]:
    """Yield ranges that together are ``ranges``, in order, each of about ``most_bytes`` or of one record."""
    for part in parts(ranges, _LOOKED_AT):
        yield from cut(part, sizes_of(records_of(session, bootstrap, part)), most_bytes)


def raw_of(records: DataFrame) -> list[Raw]:
    """Return records as our own reader has them, each partition's in order."""
    table = records.select("topic", "partition", "offset", "key", "value").toArrow().sort_by(_ORDER)
    return [Raw(*record) for record in zip(*(column.to_pylist() for column in table.columns), strict=True)]
