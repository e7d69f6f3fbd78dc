"""Sets rejected records aside, whole: as they are in Kafka, read again from there."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import HeadraceError, SourceError
from headrace.model.letter import Letter, LetterId
from headrace.model.pasted import word
from spark_jobs.by_spark import records_of, sizes_of, slices
from spark_jobs.letters import write_letters
from spark_jobs.offsets import Ranges

__all__ = ["Missed", "quarantine"]

Missed = Callable[[str, HeadraceError, Mapping[int, int]], None]
"""Notes of a topic what was lost, and below which offset of each partition."""

_FEW, _MOST = 8, 10_000
"""So many records are read whatever their size, and at most at a time."""

_SLICE_BYTES = 32 << 20

_Place = tuple[str, int, int]


def _around(wanted: Iterable[_Place]) -> Ranges:
    """Return the ranges in which some records lie; others lie between them."""
    ranges: dict[tuple[str, int], tuple[int, int]] = {}
    for topic, partition, offset in wanted:
        begin, end = ranges.get((topic, partition), (offset, offset + 1))
        ranges[topic, partition] = min(begin, offset), max(end, offset + 1)
    return ranges


def _chosen(session: SparkSession, bootstrap: str, wanted: Sequence[_Place]) -> DataFrame:
    """Return some records out of Kafka, whole."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in wanted:
        offsets.setdefault((topic, partition), []).append(offset)
    chosen = reduce(
        or_,
        (
            (f.col("topic") == topic) & (f.col("partition") == partition) & f.col("offset").isin(numbers)
            for (topic, partition), numbers in offsets.items()
        ),
    )
    return records_of(session, bootstrap, _around(wanted)).where(chosen)


def _slices(session: SparkSession, bootstrap: str, places: Sequence[_Place]) -> Iterator[Sequence[_Place]]:
    """Yield places of as many records as may be held at a time; of a few nobody asks how large they are."""
    for first in range(0, len(places), _MOST):
        part = places[first : first + _MOST]
        sizes = sizes_of(_chosen(session, bootstrap, part)) if len(part) > _FEW else []
        # Those that Kafka no longer has are missed when all are read.
        yield from slices(sizes, _SLICE_BYTES) if len(sizes) == len(part) else [part]


def quarantine(
    session: SparkSession,
    spec: PipelineSpec,
    batch: str,
    rejects: Iterable[Mapping[str, Any]],
    missed: Missed,
) -> None:
    """Write the raw records behind ``rejects`` to the batch's file, durably; remove it when there are none.

    The name depends on the query and the batch alone, so a batch that runs again replaces its file and
    every record stands once per identity. ``missed`` is told which Kafka no longer has.

    Raises:
        EnvironmentError_: When the disk refuses.
    """
    path = spec.dead_letters / f"{_query(spec.checkpoint)}-{batch}.avro"
    why = {(r["topic"], r["partition"], r["offset"]): r for r in rejects}
    if not why:
        path.unlink(missing_ok=True)
        return
    write_letters(path, _letters(session, spec, why, missed))


def _letters(
    session: SparkSession, spec: PipelineSpec, why: Mapping[_Place, Mapping[str, Any]], missed: Missed
) -> Iterator[Letter]:
    """Yield the letters, a bounded number of bytes at a time."""
    tables = {table.topic: table for table in spec.tables}
    now = int(time.time() * 1000)
    for wanted in _slices(session, spec.kafka_bootstrap, sorted(why)):
        raw = _chosen(session, spec.kafka_bootstrap, wanted).collect()
        if lost := set(wanted).difference((found.topic, found.partition, found.offset) for found in raw):
            _tell(spec, lost, missed)
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


def _tell(spec: PipelineSpec, lost: Iterable[_Place], missed: Missed) -> None:
    """Tell of each table which records, that were rejected, Kafka no longer has."""
    below: dict[str, dict[int, int]] = defaultdict(dict)
    for topic, partition, offset in sorted(lost):
        below[topic][partition] = offset + 1
    for table in spec.tables:
        if table.topic not in below:
            continue
        name = str(table.schema_.table)
        error = SourceError(
            f"Kafka no longer holds records of {name} that sink {spec.sink} rejected and was to set aside.",
            code="DEAD_LETTER_LOST",
            hint=f"headrace resnapshot SOURCE {word(name)}",
        )
        missed(table.topic, error, below[table.topic])


def _query(checkpoint: Path) -> str:
    """Return the identity of the query; a checkpoint made anew counts its batches from nought again."""
    return str(json.loads((checkpoint / "metadata").read_text().splitlines()[-1])["id"])


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
