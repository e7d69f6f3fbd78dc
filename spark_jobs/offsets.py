"""Which offsets a micro-batch covers, read from the query's own write-ahead log.

The highest offset of a batch's records is not enough: with transactions the last offset of a
partition is often a commit marker, which is never delivered, and lag would never reach zero.
"""

from __future__ import annotations

import json
from pathlib import Path

from spark_jobs.settle import Settled

__all__ = ["planned"]


def planned(checkpoint: Path, batch_id: int) -> Settled:
    """Return (topic, partition) → last offset (inclusive) that batch ``batch_id`` covers."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    ends = json.loads(lines[-1])
    return {
        (topic, int(partition)): end - 1
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
        if end > 0
    }
