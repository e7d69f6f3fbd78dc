"""Several ways of doing the same in turn, with what each costs in time, processor seconds and memory."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from headrace.observe import pidfile
from tests.bench.results import Side

__all__ = ["CLIENT", "Meter", "Tally", "Used", "race", "servers"]

CLIENT = "client"
"""The process that measures, where it does the work of one side itself."""

_MIB = 1 << 20


@dataclass
class Used:
    """What one piece of work took.

    Args:
        seconds: By the clock.
        processor_s: Process → seconds of all its threads and children.
        resident_mib: Process → memory right after the work.
    """

    seconds: float = 0.0
    processor_s: dict[str, float] = field(default_factory=dict)
    resident_mib: dict[str, float] = field(default_factory=dict)


def servers(run: Path) -> dict[str, int]:
    """Return name → process of every server whose pid file lies in ``run``."""
    found = {path.stem: pidfile.alive(path) for path in sorted(run.glob("*.pid"))}
    return {name: pid for name, pid in found.items() if pid is not None}


class Meter:
    """Reads what processes have used, each with its children; the client without, for servers are among them.

    Args:
        processes: Name → process id.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in processes.items()}
        self._own = psutil.Process()

    def beside(self, processes: Mapping[str, int]) -> Meter:
        """Return a meter that reads other processes, too."""
        known = {name: process.pid for name, process in self._processes.items()}
        return Meter({**known, **processes})

    @contextmanager
    def measured(self) -> Iterator[Used]:
        """Measure what is done inside."""
        used = Used()
        before = self._processor()
        began = time.perf_counter()
        yield used
        used.seconds = time.perf_counter() - began
        after = self._processor()
        used.processor_s = {name: after[name] - seconds for name, seconds in before.items() if name in after}
        used.resident_mib = self._memory()

    def _processor(self) -> dict[str, float]:
        own = os.times()
        found = {CLIENT: own.user + own.system + own.children_user + own.children_system}
        for name, process in self._processes.items():
            found[name] = sum(map(_seconds, _family(process)))
        return found

    def _memory(self) -> dict[str, float]:
        found = {CLIENT: _resident(self._own)}
        for name, process in self._processes.items():
            found[name] = sum(map(_resident, _family(process)))
        return {name: round(size / _MIB, 1) for name, size in found.items()}


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _seconds(process: psutil.Process) -> float:
    """Return what a process has used, and those of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + ended)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


class Tally:
    """Adds up what each side used, run by run."""

    def __init__(self) -> None:
        self._samples: dict[str, list[float]] = defaultdict(list)
        self._processor: dict[str, Counter[str]] = defaultdict(Counter)
        self._peaks: dict[str, dict[str, float]] = defaultdict(dict)
        self._rows: Counter[str] = Counter()

    def use(self, side: str, rows: int, used: Used) -> None:
        """Note the processor time and the memory of some rows of a side."""
        self._rows[side] += rows
        for name, seconds in used.processor_s.items():
            self._processor[side][name] += seconds  # type: ignore[assignment]
        peaks = self._peaks[side]
        for name, size in used.resident_mib.items():
            peaks[name] = max(peaks.get(name, 0.0), size)

    def sample(self, side: str, figure: float) -> None:
        """Note what a run of a side came to."""
        self._samples[side].append(figure)

    def sides(self) -> dict[str, Side]:
        """Return what was noted, the sides in the order in which they first came."""
        return {side: self._side(side) for side in self._samples}

    def _side(self, side: str) -> Side:
        return Side(tuple(self._samples[side]), *self.costs(side))

    def costs(self, side: str) -> tuple[dict[str, float], dict[str, float]]:
        """Return what a million rows of a side cost each process, and the most memory it held."""
        million = self._rows[side] / 1e6
        spent = {
            name: round(seconds / million, 3)
            for name, seconds in self._processor[side].items()
            if million and seconds / million >= 0.001
        }
        return spent, dict(self._peaks[side])


Way = Callable[[], int]
"""Does the work and returns how many rows it was."""


def race(
    ways: Mapping[str, Way],
    runs: int,
    meter: Meter,
    *,
    per: Callable[[int, float], float] = lambda rows, seconds: rows / seconds,
    between: Callable[[], None] = lambda: None,
) -> dict[str, Side]:
    """Let every way do its work in turn, ``runs`` times after one that does not count.

    Args:
        ways: Name → work.
        runs: How often.
        meter: Of the processes that take part.
        per: From rows and seconds to a run's figure; rows a second unless told otherwise.
        between: Called after each way and not measured.
    """
    tally = Tally()
    names = list(ways)
    for number in range(runs + 1):
        # Whoever comes second finds what the first has left running: each comes first in turn.
        shift = number % len(names)
        for name in (*names[shift:], *names[:shift]):
            with meter.measured() as used:
                rows = ways[name]()
            if number:
                tally.use(name, rows, used)
                tally.sample(name, per(rows, used.seconds))
            between()
    found = tally.sides()
    return {name: found[name] for name in names}
