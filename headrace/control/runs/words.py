"""What is told of a run while somebody waits for it: how far it is, how fast, how long it will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from headrace.control.registry import ResnapshotEntry
from headrace.control.runs.repository import Phase

__all__ = ["Words", "in_words"]

_WINDOW_S = 30.0
_LEAST_S = 1.0
"""After so long of reading a rate says something."""
_LINE_S = 5.0
"""So often a line tells how far a run is; what else changes is told at once."""

Clock = Callable[[], float]


class Words:
    """One run in words. Its rate is that of the last half minute in which it read: pauses do not count.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, run: ResnapshotEntry) -> str:
        """Return one line on how far the run is now; to be asked again and again."""
        paused = run.wanted == "pause"
        words = [f"run {run.id}: paused while {run.phase}" if paused else f"run {run.id}: {run.phase}"]
        if run.phase == Phase.READING.value:
            words.append(self._reading(run, paused=paused))
        return "; ".join(filter(None, [*words, run.reason]))

    def _reading(self, run: ResnapshotEntry, *, paused: bool) -> str:
        read = sum(run.counts.get("read", {}).values())
        rate = self._rate(read, paused=paused)
        missing = max(0, run.plan.get("estimate", 0) - read)
        words = [f"about {read:,} rows"] if read else []
        words += [f"{rate:,.0f} rows/s"] if rate >= 1 else []
        words += [f"about {missing / rate:.0f} s left"] if rate >= 1 and missing else []
        return ", ".join(words)

    def _rate(self, read: int, *, paused: bool) -> float:
        if paused:
            self._seen.clear()
            return 0.0
        now = self._clock()
        self._seen.append((now, read))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()
        began, before = self._seen[0]
        return (read - before) / (now - began) if now - began >= _LEAST_S else 0.0


def in_words(say: Callable[[str], None], clock: Clock = time.monotonic) -> Callable[[ResnapshotEntry], None]:
    """Return what tells a run in words as it changes: its state at once, how far it is now and then."""
    words, told, state, at = Words(clock), "", ("", "", ""), float("-inf")

    def see(run: ResnapshotEntry) -> None:
        nonlocal told, state, at
        now, is_now = words.of(run), (run.phase, run.wanted, run.reason)
        if now != told and (is_now != state or clock() - at >= _LINE_S):
            say(now)
            told, state, at = now, is_now, clock()

    return see
