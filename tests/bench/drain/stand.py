"""What the benchmarks of the whole chain have in common: a stack, and a side sampled run by run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from headrace.cli.context import open_context
from headrace.control.context import Context
from headrace.local import training
from headrace.observe import pidfile
from tests.bench.drain.backlog import Backlog
from tests.bench.drain.ours import Drained
from tests.bench.results import Side
from tests.support.stack import RunningStack, running_stack

__all__ = ["WARM_UPS", "Sampled", "bench_stack", "settings_of"]

WARM_UPS = 3
"""How often a fresh stack does the work before it counts: at first compilers take half of its time."""

_LEARNING_S = 240.0


@dataclass
class Sampled:
    """One side while it is measured again and again.

    Attributes:
        rates: Changes per second.
        spent: Per run: process → CPU seconds per million changes.
        peaks: Process → peak resident memory.
        wrong: What was not as it should be.
    """

    rates: list[float] = field(default_factory=list)
    spent: list[dict[str, float]] = field(default_factory=list)
    peaks: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, done: Drained, changes: int) -> None:
        """Note one drain."""
        self.rates.append(round(changes / done.slowest, 1))
        self.spent.append(done.meter.per_million(changes))
        for name, peak in done.meter.peak_mib.items():
            self.peaks[name] = max(peak, self.peaks.get(name, 0.0))
        self.wrong += done.wrong

    def side(self) -> Side:
        """Return the side with the median of each process."""
        names = {name for run in self.spent for name in run}
        spent = {name: median(run.get(name, 0.0) for run in self.spent) for name in sorted(names)}
        return Side(tuple(self.rates), spent, dict(sorted(self.peaks.items())))


@contextmanager
def bench_stack() -> Iterator[tuple[RunningStack, Context]]:
    """Yield a stack at rest and the way to command it."""
    with running_stack() as running:
        # On a machine that is new to it the stack learns, beside all else, how to start faster.
        learning, deadline = running.home.pidfile(training.NAME), time.monotonic() + _LEARNING_S
        while pidfile.alive(learning) is not None and time.monotonic() < deadline:
            time.sleep(0.5)
        yield running, open_context(running.home.root)


def settings_of(lot: Backlog) -> dict[str, Any]:
    """Return what to know of a backlog to measure the same again."""
    return {
        "workload": lot.workload.about,
        "changes": lot.changes,
        "partitions_per_topic": 1,
        "start": "target made, driver warm, every record in Kafka",
        "end": "the engine's progress file says that all offsets are settled",
        "targets": "made anew for each run",
    }
