"""Backlogs drained: each sink alone, all together, and one large transaction on its way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from headrace.cli.context import open_context
from headrace.control.context import Context
from tests.bench.drain.backlog import Backlog, backlog
from tests.bench.drain.ours import KINDS, Drained, drain
from tests.bench.drain.versions import stack_versions
from tests.bench.drain.workloads import workload
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.stack import RunningStack, running_stack

__all__ = ["BENCHMARKS", "Sampled", "bench_stack"]

_STEADY = 1_000.0
"""Transactions per second that a busy shop makes, and so changes that arrive while a backlog is drained."""


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
    """Yield a stack and the way to command it."""
    with running_stack() as running:
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


def _drains(names: Sequence[str], together: Sequence[str], setting: Setting) -> Iterable[Result]:
    with bench_stack() as (running, context):
        for name in names:
            with backlog(running, context, workload(name, full=setting.full)) as lot:
                setting.say(
                    f"{name}: {lot.changes:,} changes in Kafka, {lot.captured_s:.1f} s behind the last"
                )
                yield from _measured(lot, setting, together=name in together)


def _measured(lot: Backlog, setting: Setting, *, together: bool) -> Iterator[Result]:
    sides: dict[str, Sampled] = {kind: Sampled() for kind in KINDS}
    for kind in KINDS:
        drain(lot, [kind])
    both = Sampled()
    bounds: list[float] = []
    for _ in range(setting.runs):
        for kind, side in sides.items():
            side.add(drain(lot, [kind]), lot.changes)
        if together:
            both.add(drain(lot, KINDS), lot.changes)
            bounds.append(round(1 / sum(1 / side.rates[-1] for side in sides.values()), 1))
        rates = {kind: side.rates[-1] for kind, side in sides.items()}
        setting.say(f"{lot.workload.name}: {rates}" + (f", together {both.rates[-1]}" if together else ""))
    result = partial(_result, lot)
    for kind, side in sides.items():
        yield result(kind, f"a backlog applied by the {kind} sink alone", side, {})
    if together:
        what = "a backlog applied by all three sinks at once, against one after the other"
        yield result("together", what, both, {"one after the other": Side(tuple(bounds))})
        steady = {f"{_STEADY:,.0f} changes/s": Side((_STEADY,) * setting.runs)}
        yield result("catch_up", "all three sinks at once against a steady rate of changes", both, steady)


def _result(lot: Backlog, name: str, what: str, ours: Sampled, others: dict[str, Side]) -> Result:
    return Result(
        name=f"drain.{lot.workload.name}.{name}",
        what=what,
        unit="changes/s",
        sides={"headrace": ours.side(), **others},
        equal=not ours.wrong,
        versions=stack_versions(),
        settings={**settings_of(lot), **({"differences": ours.wrong[:5]} if ours.wrong else {})},
    )


def _promised(names: Sequence[str], together: Sequence[str]) -> tuple[str, ...]:
    found = []
    for name in names:
        of_all = ("together", "catch_up") if name in together else ()
        found += [f"drain.{name}.{what}" for what in (*KINDS, *of_all)]
    return tuple(found)


def _benchmark(name: str, minutes: float, workloads: Sequence[str], together: Sequence[str]) -> Benchmark:
    run = partial(_drains, workloads, together)
    return Benchmark(f"drain.{name}", "drain", minutes, True, run, _promised(workloads, together))


BENCHMARKS: tuple[Benchmark, ...] = (
    _benchmark("flat", 4.0, ("flat",), ("flat",)),
    _benchmark("shapes", 4.0, ("hot", "many"), ()),
)
