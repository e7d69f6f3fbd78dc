"""One transaction of ten thousand rows, from its commit until its last row can be read, in any table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import orjson
import psycopg
from redis import Redis

from headrace.control.registry import Registry
from tests.bench.drain.backlog import Backlog, backlog
from tests.bench.drain.ours import differences, sinks_on, wait_applied
from tests.bench.drain.stand import bench_stack
from tests.bench.drain.versions import stack_versions
from tests.bench.drain.workloads import Workload, flat, wide_rows
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARK"]

_STORES = ("elasticsearch", "redis")
_ROWS = 10_000
_CHUNK = 5_000
_PATIENCE_S = 240.0

_WARM_UPS = 3
_SMALL, _LARGE = "small", "large"

Read = Callable[[str], int | None]
"""Returns the ``quantity`` of a table's row with id 1 as a reader of a store sees it now."""

Readers = Mapping[str, Read]
"""By store."""


def _two_tables(rows: int) -> Workload:
    """Return two tables alike, one of which has ``rows`` rows and the other as many as a transaction."""

    def write(connection: psycopg.Connection[Any]) -> int:
        for table, size in ((_SMALL, _ROWS), (_LARGE, rows)):
            for first in range(1, size + 1, _CHUNK):
                connection.execute(wide_rows(table, first, min(size, first + _CHUNK - 1)))
                connection.commit()
        return _ROWS + rows

    ddl = "; ".join(flat(rows).ddl.replace("flat", table) for table in (_SMALL, _LARGE))
    return Workload("sizes", f"tables of {_ROWS:,} and of {rows:,} rows", (_SMALL, _LARGE), ddl, write)


def _transactions(setting: Setting) -> Iterable[Result]:
    rows = 1_000_000 if setting.full else 100_000
    with (
        bench_stack() as (running, context),
        backlog(running, context, _two_tables(rows)) as lot,
        sinks_on(lot, _STORES) as sinks,
        _readers(lot, sinks) as readers,
    ):
        wait_applied(lot, sinks)
        seconds = _timed(lot, readers, {_SMALL: _ROWS, _LARGE: rows}, setting)
        wrong = list(differences(lot, sinks))
    settings = {
        "rows_in_transaction": _ROWS,
        "change": "updates of four columns; the row that is waited for is the last to be written",
        "rows_in_table": {_SMALL: _ROWS, _LARGE: rows},
        **({"differences": wrong[:5]} if wrong else {}),
    }
    for store in _STORES:
        small, large = (Side(tuple(run[store] for run in seconds[table])) for table in (_SMALL, _LARGE))
        one = f"a transaction of {_ROWS:,} rows, from its commit until its last row is readable"
        more = f"the same in a table of {rows:,} rows, against one of {_ROWS:,}"
        for name, what, sides in (
            ("transaction", one, {"headrace": small}),
            ("growth", more, {"headrace": large, f"{_ROWS:,} rows": small}),
        ):
            yield Result(
                name=f"drain.{name}.{store}",
                what=what,
                unit="s",
                sides=sides,
                equal=not wrong,
                versions=stack_versions(),
                settings=settings,
            )


@contextmanager
def _readers(lot: Backlog, sinks: Mapping[str, str]) -> Iterator[Readers]:
    registry, endpoints = Registry(lot.context.registry), lot.running.endpoints
    topics = {entry.topic: entry.schema.table.name for entry in lot.tables}
    facts = {
        (kind, topics[topic]): found
        for name, kind in sinks.items()
        for topic, found in registry.sink(name).tables.items()
    }
    with httpx.Client(timeout=30.0) as client, Redis.from_url(endpoints.redis_url) as redis:

        def document(table: str) -> int | None:
            index = f"{endpoints.elasticsearch_url}/{facts['elasticsearch', table]['alias']}"
            answer = client.get(f"{index}/_doc/1?_source_includes=quantity")
            return int(answer.json()["_source"]["quantity"]) if answer.is_success else None

        def value(table: str) -> int | None:
            text: Any = redis.get(facts["redis", table]["key_template"].replace("{id}", "1"))
            return int(orjson.loads(text)["quantity"]) if text else None

        yield {"elasticsearch": document, "redis": value}


def _timed(
    lot: Backlog, readers: Readers, sizes: Mapping[str, int], setting: Setting
) -> dict[str, list[dict[str, float]]]:
    """Return table → per transaction: store → seconds; tables take turns, whose first do not count."""
    found: dict[str, list[dict[str, float]]] = {table: [] for table in sizes}
    with psycopg.connect(lot.dsn) as connection, ThreadPoolExecutor(len(readers)) as pool:
        for number in range(1, _WARM_UPS + setting.runs + 1):
            for table, size in sizes.items():
                mark = 1_000 + number
                connection.execute(
                    f"UPDATE {table} SET quantity = %s, note = md5(id::text || %s), amount = amount + 1,"
                    " updated_at = now() WHERE id > %s",
                    (mark, str(mark), size - _ROWS + 1),
                )
                connection.execute(f"UPDATE {table} SET quantity = %s WHERE id = 1", (mark,))
                connection.commit()
                began = time.monotonic()
                waits = {
                    store: pool.submit(_wait, partial(read, table), mark, began)
                    for store, read in readers.items()
                }
                found[table].append({store: wait.result() for store, wait in waits.items()})
            setting.say(f"{_ROWS:,} rows: " + ", ".join(f"{t} {runs[-1]}" for t, runs in found.items()))
    return {table: runs[_WARM_UPS:] for table, runs in found.items()}


def _wait(read: Callable[[], int | None], mark: int, began: float) -> float:
    while read() != mark:
        if time.monotonic() - began > _PATIENCE_S:
            raise TimeoutError(f"not visible after {_PATIENCE_S:.0f} s")
        time.sleep(0.01)
    return round(time.monotonic() - began, 3)


BENCHMARK = Benchmark(
    "drain.transaction",
    "drain",
    2.0,
    True,
    _transactions,
    tuple(f"drain.{name}.{store}" for store in _STORES for name in ("transaction", "growth")),
)
