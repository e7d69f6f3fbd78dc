"""The plain consumer beside ours: the same backlogs, taking turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from tests.bench.drain.backlog import Backlog, backlog
from tests.bench.drain.ours import drain
from tests.bench.drain.stand import WARM_UPS, Sampled, bench_stack, settings_of
from tests.bench.drain.versions import package_versions, stack_versions
from tests.bench.drain.workloads import workload
from tests.bench.peers.plain import INDEX_SETTINGS, NAME, STORES, drain_plainly
from tests.bench.results import Result
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARKS"]

_LACKS = "no dead letters, TOAST handling, truncates, key changes, tombstones, schema drift or backpressure"


def _plain(loads: Sequence[str], setting: Setting) -> Iterable[Result]:
    warm = False
    with bench_stack() as (running, context):
        for name in loads:
            with backlog(running, context, workload(name, full=setting.full)) as lot:
                yield from _beside(lot, setting, 1 if warm else WARM_UPS)
                warm = True


def _beside(lot: Backlog, setting: Setting, warm_ups: int) -> Iterator[Result]:
    sides = {store: (Sampled(), Sampled()) for store in STORES}
    for number in range(warm_ups + setting.runs):
        for store, (ours, theirs) in sides.items():
            # Whoever comes second finds the store warmer, and busier with what the first has left.
            if number % 2:
                plainly, drained = drain_plainly(lot, store), drain(lot, [store])
            else:
                drained, plainly = drain(lot, [store]), drain_plainly(lot, store)
            if number >= warm_ups:
                ours.add(drained, lot.changes)
                theirs.add(plainly, lot.changes)
                told = f"{ours.rates[-1]:,.0f} against {theirs.rates[-1]:,.0f} changes/s"
                setting.say(f"{lot.workload.name}, {store}: {told}")
    for store, (ours, theirs) in sides.items():
        wrong = ours.wrong + theirs.wrong
        yield Result(
            name=f"peer.plain_consumer.{lot.workload.name}.{store}",
            what=f"a backlog applied to {store} by our engine, and by a plain Python consumer",
            unit="changes/s",
            sides={"headrace": ours.side(), NAME: theirs.side()},
            equal=not wrong,
            versions={**stack_versions(), **package_versions("elasticsearch", "orjson", "hiredis")},
            settings={
                **settings_of(lot),
                **_settings(store),
                **({"differences": wrong[:5]} if wrong else {}),
            },
        )


def _settings(store: str) -> dict[str, Any]:
    index = {"index": INDEX_SETTINGS} if store == "elasticsearch" else {}
    return {
        **index,
        "plain_consumer": "its process warm; batches of 10,000, for Delta of 50,000",
        "plain_consumer_lacks": _LACKS,
    }


def _benchmark(name: str, minutes: float, loads: Sequence[str], *, headline: bool) -> Benchmark:
    promises = tuple(f"peer.plain_consumer.{load}.{store}" for load in loads for store in STORES)
    return Benchmark(name, "peer", minutes, headline, partial(_plain, loads), promises)


BENCHMARKS = (
    _benchmark("peer.plain_consumer", 4.0, ("flat",), headline=True),
    _benchmark("peer.plain_consumer_shapes", 6.0, ("hot", "many"), headline=False),
)
