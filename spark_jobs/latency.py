"""A mergeable histogram of latencies: 5 % wide buckets, so a percentile is at most 5 % off."""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["Histogram"]

_BASE = math.log(1.05)


class Histogram:
    """Counts of milliseconds in logarithmic buckets."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})

    def add(self, milliseconds: float, times: int = 1) -> None:
        """Count a latency; negative ones (skewed clocks) count as 0."""
        bucket = 0 if milliseconds <= 1 else int(math.log(milliseconds) / _BASE) + 1
        self.counts[bucket] = self.counts.get(bucket, 0) + times

    def merge(self, counts: Mapping[int, int]) -> None:
        """Add another histogram's counts."""
        for bucket, times in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + times

    @property
    def total(self) -> int:
        """Return how many latencies were counted."""
        return sum(self.counts.values())

    def percentile(self, share: float) -> float | None:
        """Return the latency in milliseconds below which ``share`` (0…1) lie; None when empty."""
        remaining = share * self.total
        for bucket in sorted(self.counts):
            remaining -= self.counts[bucket]
            if remaining <= 0:
                return round(math.exp(bucket * _BASE), 1)
        return None
