"""Which offsets a micro-batch covers, read from the query's own write-ahead log.

The highest offset of a batch's records is not enough: with transactions the last offset of a
partition is often a commit marker, which is never delivered, and lag would never reach zero.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.settle import Settled

__all__ = ["Ranges", "Span", "planned", "settled_last"]

Ranges = Mapping[tuple[str, int], tuple[int, int]]
"""(topic, partition) → first offset and the one after the last."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a micro-batch covers.

    Args:
        begins: (topic, partition) → last offset (inclusive) of what was settled before.
        ends: (topic, partition) → last offset (inclusive).
        records: Upper bound of how many records lie between the previous batch's end and this one's.
    """

    begins: Settled
    ends: Settled
    records: int

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
    ends = _ends(checkpoint, batch_id)
    begins = _ends(checkpoint, batch_id - 1) if batch_id else {}
    return Span(begins, ends, sum(end - begins.get(partition, -1) for partition, end in ends.items()))


def settled_last(checkpoint: Path) -> tuple[int, Settled]:
    """Return the last batch that was completed and where it ended; -1 and nothing when there is none."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    last = max(done, default=-1)
    return last, _ends(checkpoint, last) if done else {}


def _ends(checkpoint: Path, batch_id: int) -> Settled:
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    return {
        (topic, int(partition)): end - 1
        for topic, partitions in json.loads(lines[-1]).items()
        for partition, end in partitions.items()
        if end > 0
    }
