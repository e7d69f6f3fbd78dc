"""Which offsets a micro-batch covers, read from the query's own write-ahead log.

The highest offset of a batch's records is not enough: with transactions the last offset of a
partition is often a commit marker, which is never delivered, and lag would never reach zero.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.config.pipeline import TableSpec
from headrace.model.errors import SourceError
from spark_jobs.settle import Settled

__all__ = ["Ranges", "Span", "planned", "refuse_more_partitions", "settled_last"]

Ranges = Mapping[tuple[str, int], tuple[int, int]]
"""(topic, partition) → first offset and the one after the last."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a micro-batch covers.

    Args:
        begins: (topic, partition) → last offset (inclusive) of what was settled before.
        ends: (topic, partition) → last offset (inclusive).
        records: Upper bound of how many records lie between the previous batch's end and this one's.
        partitions: Topic → how many partitions it has, also empty ones.
    """

    begins: Settled
    ends: Settled
    records: int
    partitions: Mapping[str, int]

    @property
    def ranges(self) -> Ranges:
        """Return what is new in each partition; one that nobody has said anything of begins with its log."""
        return {
            place: (self.begins.get(place, -1) + 1, end + 1)
            for place, end in self.ends.items()
            if end > self.begins.get(place, -1)
        }


def planned(checkpoint: Path, batch_id: int) -> Span:
    """Return what batch ``batch_id`` covers; its offsets are logged before it runs."""
    told = _told(checkpoint, batch_id)
    ends, begins = _settled(told), _ends(checkpoint, batch_id - 1) if batch_id else {}
    records = sum(end - begins.get(place, -1) for place, end in ends.items())
    return Span(begins, ends, records, {topic: len(partitions) for topic, partitions in told.items()})


def refuse_more_partitions(tables: Iterable[TableSpec], partitions: Mapping[str, int]) -> None:
    """Insist on the partitions that the topics had at first: with others keys move, and their order is lost.

    Raises:
        SourceError: When there are more (``TOPIC_REPARTITIONED``).
    """
    for table in tables:
        if partitions.get(table.topic, 0) > table.partitions:
            raise SourceError(
                f"The topic {table.topic} has {partitions[table.topic]} partitions and was made with"
                f" {table.partitions}: the order of its changes is lost.",
                code="TOPIC_REPARTITIONED",
                hint="Remove its sinks and the source, and add them again; --partitions sets how many.",
            )


def settled_last(checkpoint: Path) -> tuple[int, Settled]:
    """Return the last batch that was completed and where it ended; -1 and nothing when there is none."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    last = max(done, default=-1)
    return last, _ends(checkpoint, last) if done else {}


def _told(checkpoint: Path, batch_id: int) -> dict[str, dict[str, int]]:
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    told: dict[str, dict[str, int]] = json.loads(lines[-1])
    return told


def _ends(checkpoint: Path, batch_id: int) -> Settled:
    return _settled(_told(checkpoint, batch_id))


def _settled(told: Mapping[str, Mapping[str, int]]) -> Settled:
    return {
        (topic, int(partition)): end - 1
        for topic, partitions in told.items()
        for partition, end in partitions.items()
        if end > 0
    }
