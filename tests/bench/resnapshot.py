"""A resnapshot of one large table into three sinks: how fast it is, what it costs, and whom it holds up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import psycopg

from headrace.control import tables
from headrace.control.runs import start as runs
from headrace.demo.probe import Latencies, percentile
from headrace.model.schema import TableId
from tests.bench.drain.meter import Meter
from tests.bench.latency import shown
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.shop import Shop, open_shop
from tests.support.stack import running_stack

__all__ = ["BENCHMARKS"]

_ROWS, _MANY = 100_000, 1_000_000
_TENTH = 10
"""Memory is measured with a tenth of the rows too: it is to be the same."""

_BIG = TableId("public", "big")
_SHAPE = """
CREATE TABLE big (
    id bigint PRIMARY KEY, sku text NOT NULL, name text, price numeric(10, 2), stock int, tags text[],
    changed timestamptz
)"""
_FILL = """
INSERT INTO big SELECT g, 'sku-' || g, repeat('name ', 6) || g, g %% 1000 + 0.5, g %% 77,
    ARRAY['a', 'b' || g], now() FROM generate_series(%s::bigint, %s::bigint) g"""

_WARM_UP_S = 30.0
_RUSH = 5_000.0
_STORES = ("search", "cache", "lake")
_MARKER_EVERY_S = 0.2
_WORKER = "runs.worker"


@dataclass
class _Found:
    """What the runs took, in turn.

    Args:
        rates: Rows a second of each resnapshot, from the call until it is swept everywhere.
        before, meanwhile: Store → milliseconds until rows of another table were seen.
        small, large: Peak of the worker's resident memory, MiB, with a tenth of the rows and with all.
        unseen: Rows of the other table that nobody ever saw.
    """

    rates: list[float] = field(default_factory=list)
    before: dict[str, list[float]] = field(default_factory=lambda: {store: [] for store in _STORES})
    meanwhile: dict[str, list[float]] = field(default_factory=lambda: {store: [] for store in _STORES})
    small: list[float] = field(default_factory=list)
    large: list[float] = field(default_factory=list)
    unseen: int = 0

    def note(self, kept: dict[str, list[float]], seen: Mapping[str, Latencies]) -> None:
        """Keep how long rows took to be seen."""
        for store, times in seen.items():
            kept[store] += times.seen
            self.unseen += times.unseen


def _measure(setting: Setting) -> Iterator[Result]:
    rows, found = _MANY if setting.full else _ROWS, _Found()
    with running_stack() as running, open_shop(running, "bench", scale=0.25) as shop:
        shop.write(_WARM_UP_S, seed=1, rate=_RUSH)
        shop.converge()
        _ask(shop, _SHAPE)
        _ask(shop, _FILL, 1, rows // _TENTH)
        tables.take_in(shop.context, shop.name, [_BIG])
        _, small = _resnapshot(shop)
        _ask(shop, _FILL, rows // _TENTH + 1, rows)
        shop.drain(timeout=900.0)
        seconds, _ = _resnapshot(shop)  # the first of its size: what it takes tells how long to look before
        for number in range(setting.runs):
            found.note(found.before, shown(shop, partial(time.sleep, seconds), every=_MARKER_EVERY_S)[0])
            took: list[tuple[float, float]] = []
            work = partial(lambda took: took.append(_resnapshot(shop)), took)
            found.note(found.meanwhile, shown(shop, work, every=_MARKER_EVERY_S)[0])
            seconds, large = took[0]
            found.rates.append(round(rows / seconds))
            found.small.append(small)
            found.large.append(large)
            setting.say(f"resnapshot {number + 1}: {rows / seconds:,.0f} rows a second")
        equal = all(one.equal for one in shop.compare())
    yield from _results(rows, found, equal=equal)


def _ask(shop: Shop, statement: str, *values: int) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute(statement, values or None)


def _resnapshot(shop: Shop) -> tuple[float, float]:
    """Return the seconds a resnapshot of the large table took, and the worker's peak of memory in MiB."""
    began = time.monotonic()
    with Meter(shop.running.home.run) as meter:
        runs.resnapshot(shop.context, shop.name, tables=[_BIG])
    return time.monotonic() - began, meter.peak_mib.get(_WORKER, 0.0)


def _results(rows: int, found: _Found, *, equal: bool) -> Iterator[Result]:
    settings = {"rows": rows, "sinks": 3, "runs": len(found.rates)}
    whole = f"a table of {rows:,} rows is read anew into three sinks and swept"
    rates = Side(tuple(found.rates), {}, {})
    yield Result(
        "resnapshot.rate",
        f"{whole}, others being written",
        "rows/s",
        {"headrace": rates},
        equal,
        settings=settings,
    )
    for store in _STORES:
        late = [percentile(kept[store], 0.99) or 0.0 for kept in (found.before, found.meanwhile)]
        sides = {
            name: Side((round(p99, 1),), {}, {})
            for name, p99 in zip(("before", "headrace"), late, strict=True)
        }
        yield Result(
            f"resnapshot.latency.{store}.p99",
            f"from before a commit to another table until the {store} store shows it, while {whole}",
            "ms",
            sides,
            equal,
            failure=f"{found.unseen} rows were never seen" if found.unseen else None,
            settings=settings | {"rows of the other table": len(found.meanwhile[store])},
        )
    memory = {"a tenth of the rows": Side(tuple(found.small)), "headrace": Side(tuple(found.large))}
    yield Result(
        "resnapshot.memory",
        f"most memory of the process that carries a run out, while {whole}",
        "MiB",
        memory,
        equal,
        settings=settings,
    )


BENCHMARKS = (
    Benchmark(
        "resnapshot",
        "resnapshot",
        8.0,
        headline=False,
        run=_measure,
        promises=(
            "resnapshot.rate",
            *(f"resnapshot.latency.{store}.p99" for store in _STORES),
            "resnapshot.memory",
        ),
    ),
)
