"""Which offsets a micro-batch covers, read from the query's own write-ahead log.

The highest offset of a batch's records is not enough: with transactions the last offset of a
partition is often a commit marker, which is never delivered, and lag would never reach zero.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.config.pipeline import TableSpec, write_private
from headrace.model.errors import HeadraceError, SourceError

__all__ = ["Ranges", "Settled", "Span", "forget", "parts", "planned", "repartitioned", "settled_last"]

Ranges = Mapping[tuple[str, int], tuple[int, int]]
"""(topic, partition) → first offset and the one after the last."""

Settled = dict[tuple[str, int], int]
"""(topic, partition) → last offset (inclusive) of what is durable in a store."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a micro-batch covers.

    Args:
        begins: (topic, partition) → last offset (inclusive) of what was settled before.
        ends: (topic, partition) → last offset (inclusive).
        records: Upper bound of how many records lie between the previous batch's end and this one's.
        back: Places that end before what was settled: the two offsets. Kafka has lost records.
        partitions: Topic → how many partitions it has, also empty ones.
    """

    begins: Settled
    ends: Settled
    records: int
    partitions: Mapping[str, int]
    back: Ranges

    def of(self, topics: Collection[str]) -> Span:
        """Return the same of some topics only."""
        return replace(
            self,
            begins={place: end for place, end in self.begins.items() if place[0] in topics},
            ends={place: end for place, end in self.ends.items() if place[0] in topics},
            partitions={topic: count for topic, count in self.partitions.items() if topic in topics},
            back={place: ends for place, ends in self.back.items() if place[0] in topics},
        )

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
    records = sum(max(0, end - begins.get(place, -1)) for place, end in ends.items())
    back = {
        p: (begin, ends.get(p, -1)) for p, begin in begins.items() if ends.get(p, -1) < begin and p[0] in told
    }
    return Span(begins, ends, records, {topic: len(partitions) for topic, partitions in told.items()}, back)


def parts(gone: Ranges, most: int) -> Iterator[Ranges]:
    """Yield ranges of at most about ``most`` records that together are ``gone``, in order."""
    share = max(1, most // max(1, len(gone)))
    left = dict(gone)
    while left:
        yield {place: (begin, min(end, begin + share)) for place, (begin, end) in left.items()}
        left = {place: (begin + share, end) for place, (begin, end) in left.items() if begin + share < end}


def forget(checkpoint: Path, topics: Collection[str]) -> None:
    """Take topics out of a checkpoint: Spark reads them from their beginning, as it does new ones.

    For those made anew while the query did not run: where the former ones ended says nothing of them.
    """
    for path in (checkpoint / "offsets").glob("*") if topics else ():
        if not path.name.isdigit():
            continue
        *head, last = path.read_text().splitlines()
        told = json.loads(last)
        if told.keys().isdisjoint(topics):
            continue
        left = {topic: ends for topic, ends in told.items() if topic not in topics}
        # Spark compares a file with its checksum where there is one.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        write_private(path, "\n".join([*head, json.dumps(left)]))


def repartitioned(tables: Iterable[TableSpec], partitions: Mapping[str, int]) -> dict[str, HeadraceError]:
    """Return topic → error for those with more partitions than at first: keys move, their order is lost."""
    return {
        table.topic: SourceError(
            f"The topic {table.topic} has {partitions[table.topic]} partitions and was made with"
            f" {table.partitions}: the order of its changes is lost.",
            code="TOPIC_REPARTITIONED",
            hint="headrace recover SOURCE",
        )
        for table in tables
        if partitions.get(table.topic, 0) > table.partitions
    }


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
