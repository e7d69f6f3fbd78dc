"""Debezium Server beside ours: a stream of changes on its way into Redis, taking turns.

It appends every change to a stream and leaves it to readers to make rows of them; ours has the rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import psycopg
from redis import Redis

from headrace.control import sink as control_sink
from headrace.control import source as control_source
from headrace.control.context import Context
from headrace.control.progress import read_progress
from headrace.control.registry import Registry
from headrace.local.connect import Connect
from tests.bench.drain.meter import Meter
from tests.bench.drain.ours import Drained
from tests.bench.drain.stand import Sampled, bench_stack
from tests.bench.drain.versions import stack_versions
from tests.bench.drain.workloads import wide_rows
from tests.bench.peers import debezium_server
from tests.bench.peers.session import MARKED, TABLE, WARM_UPS, peer_database, stream
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.stack import RunningStack

__all__ = ["BENCHMARK"]

_SOURCE, _SINK = "peer", "peer_cache"
_PATIENCE_S = 150.0
_LAG_EVERY_S = 0.3
_PAGE = 5_000

_Rows = dict[int, tuple[Any, ...]]
"""Id → what is compared of a row that was streamed."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A tool at work.

    Args:
        arrived: How many changes have arrived in Redis.
        has: Whether a row that was just committed has.
        rows: The rows as somebody who reads Redis has them.
        processes: Name → pid of its processes, of those that are not the local stack's.
    """

    arrived: Callable[[], int]
    has: Callable[[int], bool]
    rows: Callable[[], _Rows]
    processes: dict[str, int]


@contextmanager
def _ours(running: RunningStack, context: Context, dsn: str, redis: Redis) -> Iterator[_Running]:
    """Yield source, topic and Redis sink, added to a stack whose engine runs, and the first rows loaded."""
    control_source.add(context, _SOURCE, dsn, wait=False)
    try:
        settings = {"url": running.endpoints.redis_url, "format": "json"}
        control_sink.add(context, _SINK, "redis", settings=settings, source=_SOURCE, wait=False)
        try:
            (facts,) = Registry(context.registry).sink(_SINK).tables.values()
            head = facts["key_template"].partition("{")[0]

            def applied() -> int:
                progress = read_progress(context.progress, _SINK)
                return sum(table.applied for table in progress.tables.values()) if progress else 0

            loaded = _count(dsn)
            _until(lambda: applied() >= loaded)
            yield _Running(
                lambda: applied() - loaded,
                lambda number: bool(redis.exists(f"{head}{number}")),
                lambda: _cached(redis, head),
                {},
            )
        finally:
            control_sink.remove(context, _SINK, purge=True)
    finally:
        control_source.remove(context, _SOURCE)


@contextmanager
def _theirs(url: str, dsn: str, redis: Redis) -> Iterator[_Running]:
    """Yield a Debezium Server that streams what comes from now on."""
    with debezium_server.debezium_server(dsn, TABLE, url) as server:
        seen = 0

        def grown(_: int) -> bool:
            nonlocal seen
            length = int(redis.xlen(server.stream))
            more, seen = length > seen, length
            return more

        def arrived() -> int:
            nonlocal seen
            seen = int(redis.xlen(server.stream))
            return seen

        try:
            yield _Running(
                arrived, grown, lambda: _replayed(redis, server.stream), {debezium_server.NAME: server.pid}
            )
        finally:
            redis.delete(server.stream)


@dataclass
class _Side:
    streamed: Sampled = field(default_factory=Sampled)
    lag_ms: list[float] = field(default_factory=list)


_Tool = Callable[[str], AbstractContextManager[_Running]]


def _sit(tool: _Tool, running: RunningStack, rows: int, markers: int, side: _Side) -> None:
    """Let a tool carry as many changes as there are rows, and some single rows; note how it went."""
    with peer_database(running.endpoints.postgres_dsn, rows) as dsn, tool(dsn) as at:
        with Meter(running.home.run, at.processes) as meter, psycopg.connect(dsn) as connection:
            began = time.monotonic()
            changes = stream(connection, rows)
            _until(lambda: at.arrived() >= changes)
            seconds = time.monotonic() - began
        wrong = () if at.rows() == _expected(dsn) else ("rows differ",)
        side.lag_ms.append(round(median(_lag(dsn, at, 2 * rows + 1, markers)), 1))
    side.streamed.add(Drained({"": seconds}, meter, wrong), changes)


def _lag(dsn: str, at: _Running, first: int, count: int) -> Iterator[float]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(first, first + count):
            time.sleep(_LAG_EVERY_S)
            connection.execute(wide_rows(TABLE, number, number))
            began = time.monotonic()
            _until(lambda number=number: at.has(number), every=0.004)  # type: ignore[misc]
            yield (time.monotonic() - began) * 1000


def _until(done: Callable[[], bool], *, every: float = 0.02) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not there after {_PATIENCE_S:.0f} s")
        time.sleep(every)


def _count(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
    assert found is not None
    return int(found[0])


def _expected(dsn: str) -> _Rows:
    asked = f"SELECT id, quantity, status, note, amount::text FROM {TABLE} WHERE quantity >= {MARKED}"
    with psycopg.connect(dsn) as connection:
        return {row[0]: tuple(row[1:]) for row in connection.execute(asked)}


def _compared(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["quantity"], row["status"], row["note"], row["amount"]


def _cached(redis: Redis, head: str) -> _Rows:
    keys = list(redis.scan_iter(match=f"{head}*", count=_PAGE))
    pages = (redis.mget(keys[start : start + _PAGE]) for start in range(0, len(keys), _PAGE))
    rows = [json.loads(value) for page in pages for value in page if value is not None]
    return {row["id"]: _compared(row) for row in rows if row["quantity"] >= MARKED}


def _replayed(redis: Any, name: str) -> _Rows:
    rows: _Rows = {}
    start = "-"
    while page := redis.xrange(name, min=start, count=_PAGE):
        for place, fields in page:
            for value in fields.values():
                row = json.loads(value)["after"]
                rows[row["id"]] = _compared(row)
            start = f"({place.decode()}"
    return rows


_ROWS, _MARKERS = 40_000, 20
_QUESTIONS = {
    "streamed": ("changes/s", "inserts and updates, from the first commit until all have arrived in Redis"),
    "lag_p50": ("ms", "a single row, from its commit until it is in Redis: the median"),
}


def _debezium(setting: Setting) -> Iterable[Result]:
    sides = {"headrace": _Side(), debezium_server.NAME: _Side()}
    with bench_stack() as (running, context):
        url = running.endpoints.redis_url
        streams = url.rpartition("/")[0] + "/1"
        with closing(Redis.from_url(url)) as cache, closing(Redis.from_url(streams)) as other:
            tools: dict[str, _Tool] = {
                "headrace": lambda dsn: _ours(running, context, dsn, cache),
                debezium_server.NAME: lambda dsn: _theirs(streams, dsn, other),
            }
            for tool in tools.values():
                for _ in range(WARM_UPS):
                    _sit(tool, running, _ROWS, 3, _Side())
            for _ in range(setting.runs):
                for name, tool in tools.items():
                    side = sides[name]
                    _sit(tool, running, _ROWS, _MARKERS, side)
                    told = f"{side.streamed.rates[-1]:,.0f} changes/s, lag {side.lag_ms[-1]} ms"
                    setting.say(f"{name}: {told}")
    facts = {
        "changes": f"{_ROWS // 2:,} inserts, then {_ROWS // 2:,} updates of other rows, 100 to a transaction",
        "markers_per_run": _MARKERS,
        "warm-ups": f"{WARM_UPS} for each, which do not count",
        debezium_server.NAME: "a process of its own each time, every setting its default; a stream, not rows",
    }
    newest = Connect().version.partition("Debezium ")[2].rstrip(")")
    if newest != debezium_server.VERSION:
        facts["stale"] = f"{debezium_server.VERSION} was measured, ours has the connector of {newest}"
    wrong = [what for side in sides.values() for what in side.streamed.wrong]
    for question, (unit, what) in _QUESTIONS.items():
        yield Result(
            name=f"peer.debezium_server.{question}",
            what=what,
            unit=unit,
            sides={
                name: side.streamed.side() if question == "streamed" else Side(tuple(side.lag_ms))
                for name, side in sides.items()
            },
            equal=not wrong,
            versions={**stack_versions(), debezium_server.PACKAGE: debezium_server.VERSION},
            settings={**facts, **({"differences": wrong[:5]} if wrong else {})},
        )


BENCHMARK = Benchmark(
    "peer.debezium_server",
    "peer",
    4.0,
    headline=False,
    run=_debezium,
    promises=tuple(f"peer.debezium_server.{question}" for question in _QUESTIONS),
)
