"""Latencies in mergeable histograms: 5 % wide buckets, so a percentile is at most 5 % off."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping

__all__ = ["Histogram", "Recent"]

_BASE = math.log(1.05)
_PARTS = 10


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


class Recent:
    """The latencies of the last ``seconds``, and of a tenth of that more at most.

    One slow hour would otherwise stand in the percentiles for as long as the process lives.

    Args:
        seconds: How far back.
        clock: Seconds that never go back.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._parts: deque[tuple[float, Histogram]] = deque()

    def merge(self, counts: Mapping[int, int]) -> None:
        """Add latencies of now."""
        now = self._clock()
        if not self._parts or now - self._parts[-1][0] >= self.seconds / _PARTS:
            self._parts.append((now, Histogram()))
        self._parts[-1][1].merge(counts)

    def histogram(self) -> Histogram:
        """Return all of them in one."""
        first = self._clock() - self.seconds * (1 + 1 / _PARTS)
        while self._parts and self._parts[0][0] < first:
            self._parts.popleft()
        found = Histogram()
        for _, part in self._parts:
            found.merge(part.counts)
        return found
