"""From just before a row's commit until a reader of each store has it, under three loads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.demo.original import Original
from headrace.demo.probe import MARKED, Latencies, Markers, percentile
from tests.bench.meter import Meter, Tally, servers
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.shop import Shop, open_shop
from tests.support.stack import running_stack

__all__ = ["BENCHMARKS", "shown"]

_LOADS = ("light", "steady", "half")
_STEADY = 20.0
"""Row changes a second beside the markers, of which there are some three a second."""

_STORES = ("search", "cache", "lake")
_RANKS = {"p50": 0.5, "p99": 0.99}

_ASK_EVERY_S = {"search": 0.02, "cache": 0.01, "lake": 0.05}
"""Asking costs processor time, too: more often, and the question delays the answer."""

_MARKER_EVERY_S = 0.35
_WARM_UP_S = 45.0
_RUN_S = 12.0
_FULL_RUN_S = 24.0
_RUSH_S = 12.0
_RUSH = 5_000.0
"""More changes a second than writers and sinks can do here."""


@dataclass
class _Found:
    """One load's figures.

    Args:
        seen: Store → the milliseconds of each marker, run by run.
        unseen: Markers that nobody ever saw.
    """

    seen: dict[str, list[list[float]]] = field(default_factory=lambda: {store: [] for store in _STORES})
    unseen: int = 0


def _measure(setting: Setting) -> Iterator[Result]:
    with running_stack() as running, open_shop(running, "bench", scale=1.0) as shop:
        # At first the JVMs compile for as long as they work, and at a light load for many minutes.
        shop.write(_WARM_UP_S, seed=1, rate=_RUSH)
        shop.converge()
        most = _most(shop)
        setting.say(f"latency: at most {most:.0f} changes a second, written and applied")
        rates = {"light": 0.0, "steady": _STEADY, "half": round(most / 2)}
        found = {load: _Found() for load in _LOADS}
        tallies = {load: Tally() for load in _LOADS}
        meter = Meter(servers(running.home.run))
        seconds = _FULL_RUN_S if setting.full else _RUN_S
        for load in _LOADS:
            # Small batches take other ways through the servers than a rush, and these are cold yet.
            _run(shop, load, rates[load], seconds, _Found(), Tally(), meter)
        for _ in range(setting.runs):
            for load in _LOADS:
                _run(shop, load, rates[load], seconds, found[load], tallies[load], meter)
        differing = [comparison for comparison in shop.compare() if not comparison.equal]
    for load in _LOADS:
        yield from _results(load, rates[load], seconds, found[load], tallies[load], equal=not differing)


def _most(shop: Shop) -> float:
    """Return how many changes a second all three sinks keep up with."""
    began = time.monotonic()
    tally = shop.write(_RUSH_S, seed=7, rate=_RUSH)
    shop.drain()
    return tally.changes / (time.monotonic() - began)


def _run(
    shop: Shop, load: str, rate: float, seconds: float, found: _Found, tally: Tally, meter: Meter
) -> None:
    with meter.measured() as used:
        latencies, changes = _markers(shop, seconds, rate)
    shop.drain()
    tally.use(load, changes, used)
    for name, times in latencies.items():
        found.seen[name].append(times.seen)
        found.unseen += times.unseen


def _markers(shop: Shop, seconds: float, rate: float) -> tuple[Mapping[str, Latencies], int]:
    people = shop.people(seed=2, rate=rate) if rate else None
    if people is not None:
        people.start()
    found, written = shown(shop, lambda: time.sleep(seconds))
    changes = people.stop().changes if people is not None else 0
    return found, changes + written


def shown(
    shop: Shop, work: Callable[[], object], *, every: float = _MARKER_EVERY_S
) -> tuple[Mapping[str, Latencies], int]:
    """Return store → how long each marker took to be seen during ``work``; and how many there were."""
    with Original.open(shop.dsn) as original:
        marked = next(schema for schema in original.tables() if schema.table.name == MARKED)
    with shop.stores() as stores:
        pauses = {store: _ASK_EVERY_S[store.name.removeprefix("bench_")] for store in stores}
        markers = Markers(shop.dsn, marked, pauses, every=every)
        markers.start()
        work()
        found = markers.stop(patience=30)
    return {name.removeprefix("bench_"): times for name, times in found.items()}, markers.written


def _results(
    load: str, rate: float, seconds: float, found: _Found, tally: Tally, *, equal: bool
) -> Iterator[Result]:
    spent, peaks = tally.costs(load)
    if load != "half":
        spent = {}  # a million changes of so light a load would cost what a machine uses in weeks
    for store in _STORES:
        runs = found.seen[store]
        for rank, share in _RANKS.items():
            # Of one run the 99th percentile would be its worst marker, so all runs are ranked together.
            every = [[each for times in runs for each in times]] if rank == "p99" else runs
            samples = tuple(round(percentile(times, share) or 0.0, 1) for times in every if times)
            yield Result(
                f"latency.{load}.{store}.{rank}",
                f"from before the commit of a row until the {store} store shows it, {rank}",
                "ms",
                {"headrace": Side(samples, spent, peaks)},
                equal=equal,
                failure=f"{found.unseen} markers were never seen" if found.unseen else None,
                settings={
                    "changes a second": rate,
                    "over tables": 8,
                    "runs": len(runs),
                    "seconds a run": seconds,
                    "markers": sum(map(len, runs)),
                },
            )


BENCHMARKS = (
    Benchmark(
        "latency",
        "latency",
        8.0,
        headline=False,
        run=_measure,
        promises=tuple(
            f"latency.{load}.{store}.{rank}" for load in _LOADS for store in _STORES for rank in _RANKS
        ),
    ),
)
