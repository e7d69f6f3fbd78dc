"""What there is to measure: one list; a new benchmark is one line more of it.

A module of :data:`MODULES` names its benchmarks in ``BENCHMARKS``, a tuple of :class:`Benchmark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

from tests.bench.results import Result

__all__ = ["MODULES", "Benchmark", "Setting", "chosen", "registered"]

MODULES: tuple[str, ...] = (
    "tests.bench.apply.stores",
    "tests.bench.drain.benchmarks",
    "tests.bench.peers.benchmarks",
    "tests.bench.latency",
    "tests.bench.resnapshot",
    "tests.bench.sweeps",
    "tests.bench.check",
    "tests.bench.idle",
    "tests.bench.large",
    "tests.bench.scale",
    "tests.bench.tables",
    "tests.bench.raw.postgres",
    "tests.bench.raw.stores",
    "tests.bench.raw.delta",
    "tests.bench.raw.debezium",
    "tests.bench.raw.ladder",
    "tests.bench.raw.floor",
    "tests.bench.demo",
)


def _nothing(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a benchmark is told.

    Args:
        cache: A directory that outlives the run: environments of peers, what was downloaded.
        runs: How many samples each side is to have, measured in turn; a warm-up comes on top.
        full: Whether to take larger sizes, where a benchmark has them.
        say: Shows a line of progress to whoever waits.
    """

    cache: Path
    runs: int = 5
    full: bool = False
    say: Callable[[str], None] = _nothing


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Something to measure.

    What can go wrong in a measurement (a peer that cannot be had, rows that differ) is a
    :class:`Result` with ``failure`` or ``equal=False``. What ``run`` raises becomes such a result for
    everything it promised and had not yet yielded.

    Args:
        name: Dotted and stable, e.g. ``raw.redis``.
        group: Where the page shows it: ``raw``, ``apply``, ``peer``, ``drain``, ``latency``, ``demo`` …
        minutes: About how long it takes with five runs, for those who wait.
        headline: Whether ``make bench`` measures it; ``make bench-full`` measures everything.
        run: Measures, and yields each result as soon as it is there.
        promises: Names of the results; one of the benchmark's own name, if none are named. What was
            promised and did not come is shown as not measured.
    """

    name: str
    group: str
    minutes: float
    headline: bool
    run: Callable[[Setting], Iterable[Result]]
    promises: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """Return the names of the results to expect."""
        return self.promises or (self.name,)


def registered(modules: Sequence[str] = MODULES) -> tuple[Benchmark, ...]:
    """Return all benchmarks in the order in which they are measured and shown."""
    found: list[Benchmark] = []
    for module in modules:
        found += import_module(module).BENCHMARKS
    return tuple(found)


def chosen(
    benchmarks: Iterable[Benchmark], *, full: bool = False, only: Sequence[str] = ()
) -> tuple[Benchmark, ...]:
    """Return those that match a pattern, or the headline ones, or all.

    Args:
        benchmarks: To choose from.
        full: All of them.
        only: Shell patterns for names of benchmarks, groups or results; they outweigh ``full``.
    """
    if not only:
        return tuple(each for each in benchmarks if full or each.headline)
    return tuple(
        each
        for each in benchmarks
        if any(
            fnmatchcase(name, pattern) for name in (each.name, each.group, *each.results) for pattern in only
        )
    )
