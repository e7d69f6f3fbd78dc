"""Backlogs drained: each sink alone, all together, and one large transaction on its way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from tests.bench.drain import spread, transaction
from tests.bench.drain.backlog import Backlog, backlog
from tests.bench.drain.ours import KINDS, drain
from tests.bench.drain.stand import WARM_UPS, Sampled, bench_stack, settings_of
from tests.bench.drain.versions import stack_versions
from tests.bench.drain.workloads import workload
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARKS"]

_STEADY = 1_000.0
"""Transactions per second that a busy shop makes, and so changes that arrive while a backlog is drained."""


def _drains(names: Sequence[str], together: Sequence[str], setting: Setting) -> Iterable[Result]:
    with bench_stack() as (running, context):
        for name in names:
            with backlog(running, context, workload(name, full=setting.full)) as lot:
                setting.say(
                    f"{name}: {lot.changes:,} changes in Kafka, {lot.captured_s:.1f} s behind the last"
                )
                warm_ups = WARM_UPS if name == names[0] else 1
                yield from _measured(lot, setting, together=name in together, warm_ups=warm_ups)


def _measured(lot: Backlog, setting: Setting, *, together: bool, warm_ups: int) -> Iterator[Result]:
    sides: dict[str, Sampled] = {kind: Sampled() for kind in KINDS}
    for _ in range(warm_ups):
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


def _benchmark(
    name: str, minutes: float, workloads: Sequence[str], together: Sequence[str] = (), *, headline: bool
) -> Benchmark:
    run = partial(_drains, workloads, together)
    return Benchmark(f"drain.{name}", "drain", minutes, headline, run, _promised(workloads, together))


BENCHMARKS: tuple[Benchmark, ...] = (
    _benchmark("flat", 4.0, ("flat",), ("flat",), headline=True),
    # Beside a plain consumer the headline has these shapes, too.
    _benchmark("shapes", 5.0, ("hot", "many"), headline=False),
    transaction.BENCHMARK,
    spread.BENCHMARK,
)
