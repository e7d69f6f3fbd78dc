"""What is told of a run: its state in one word; how far it is, how fast, how long it will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from headrace.control.registry import ResnapshotEntry
from headrace.control.runs.repository import Phase

__all__ = ["Words", "in_words", "state_of"]

_WINDOW_S = 30.0
_LEAST_S = 1.0
"""After so long of reading a rate says something."""
_LINE_S = 5.0
"""So often a line tells how far a run is; what else changes is told at once."""

Clock = Callable[[], float]
Left = Callable[[ResnapshotEntry], int | None]
"""Tells how many records are still to be applied; None when nobody knows."""


def state_of(run: ResnapshotEntry) -> str:
    """Return the phase of a run, or what is becoming of it: ``aborting``, ``pausing`` or ``paused``.

    It is pausing until the connector has stopped what it reads for the run.
    """
    if run.wanted == "abort":
        return "aborting"
    if run.wanted == "pause":
        reads = (run.plan.get("asked") or run.plan.get("stopping")) and not run.plan.get("ends")
        return "pausing" if reads else "paused"
    return run.phase


class Words:
    """One run in words. Its rate is that of the last half minute in which it went on: pauses do not count.

    Args:
        clock: Seconds that never go back.
        left: What tells how many records sinks have still to apply.
    """

    def __init__(self, clock: Clock = time.monotonic, left: Left = lambda _: None) -> None:
        self._clock = clock
        self._left = left
        self._seen: deque[tuple[float, int]] = deque()
        self._of = ""

    def of(self, run: ResnapshotEntry) -> str:
        """Return one line on how far the run is now; to be asked again and again."""
        paused, state = run.wanted == "pause", state_of(run)
        words = [f"run {run.id}: {state}" + (f" while {run.phase}" if state != run.phase else "")]
        what = "read" if run.phase == Phase.READING.value else "applied"
        if what != self._of:
            self._of = what
            self._seen.clear()
        if what == "read":
            words.append(self._reading(run, paused=paused))
        elif (left := self._left(run)) is not None:
            words.append(self._applying(left, paused=paused))
        return "; ".join(filter(None, [*words, run.reason]))

    def _reading(self, run: ResnapshotEntry, *, paused: bool) -> str:
        read = sum(run.counts.get("read", {}).values())
        rate = self._rate(read, paused=paused)
        missing = max(0, run.plan.get("estimate", 0) - read)
        words = [f"about {read:,} rows"] if read else []
        words += [f"{rate:,.0f} rows/s"] if rate >= 1 else []
        words += [f"about {missing / rate:.0f} s left"] if rate >= 1 and missing else []
        return ", ".join(words)

    def _applying(self, left: int, *, paused: bool) -> str:
        rate = self._rate(-left, paused=paused)
        words = [f"{left:,} records left to apply"]
        words += [f"{rate:,.0f} records/s"] if rate >= 1 else []
        words += [f"about {left / rate:.0f} s left"] if rate >= 1 and left else []
        return ", ".join(words)

    def _rate(self, done: int, *, paused: bool) -> float:
        if paused:
            self._seen.clear()
            return 0.0
        now = self._clock()
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()
        began, before = self._seen[0]
        return (done - before) / (now - began) if now - began >= _LEAST_S else 0.0


def in_words(
    say: Callable[[str], None], clock: Clock = time.monotonic, left: Left = lambda _: None
) -> Callable[[ResnapshotEntry], None]:
    """Return what tells a run in words as it changes: its state at once, how far it is now and then."""
    words, told, state, at = Words(clock, left), "", ("", "", ""), float("-inf")

    def see(run: ResnapshotEntry) -> None:
        nonlocal told, state, at
        now, is_now = words.of(run), (run.phase, run.wanted, run.reason)
        if now != told and (is_now != state or clock() - at >= _LINE_S):
            say(now)
            told, state, at = now, is_now, clock()

    return see
