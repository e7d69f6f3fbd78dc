"""Apply in the driver: a few records, and sinks that commit a table at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace.model.change import Record
from headrace.observe.failpoints import hit
from spark_jobs.apply import apply_records, carry_of, sink_of
from spark_jobs.decode import decoders
from spark_jobs.held import Holds
from spark_jobs.reader import Raw
from spark_jobs.report import Report

__all__ = ["Begins", "apply_raw"]

Begins = Mapping[tuple[str, int], int]
"""(topic, partition) → the first offset that is applied."""

_THREADS = 4


def apply_raw(found: Iterable[Raw], pipeline: str, begins: Begins, holds: Holds) -> list[Report]:
    """Apply records that were read here; one report per table.

    Args:
        found: The records.
        pipeline: As JSON.
        begins: The first offset of each place that has not been applied before them.
        holds: Rows that were behind before them; told what has become of these.
    """
    topics: dict[str, list[Raw]] = {}
    for raw in found:
        topics.setdefault(raw.topic, []).append(raw)

    def part(topic: str) -> Iterable[Record]:
        decode = decoders(pipeline)[topic].decode_raw
        return (decode(raw, raw.key, raw.value) for raw in topics[topic])

    return _applied(list(topics), part, pipeline, begins, holds)


def _applied(
    topics: Sequence[str],
    part: Callable[[str], Iterable[Record]],
    pipeline: str,
    begins: Begins,
    holds: Holds,
) -> list[Report]:
    sink, tables = sink_of(pipeline)
    hit("batch.decoded", sink.kind)
    carry = carry_of(pipeline, begins)

    def one(topic: str) -> Report:
        report = apply_records(part(topic), sink, tables, carry, holds)
        return report.drift(tables, decoders(pipeline))

    if len(topics) == 1:
        return [one(topics[0])]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="table") as pool:
        return list(pool.map(one, topics))
