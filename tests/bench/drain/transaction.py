"""One transaction of ten thousand rows, from its commit until its last row can be read, in any table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
from tests.bench.drain.workloads import flat, wide_rows
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARK"]

_STORES = ("elasticsearch", "redis")
_ROWS = 10_000
_CHUNK = 5_000
_PATIENCE_S = 240.0

Read = Callable[[], int | None]
"""Returns the ``quantity`` of the row with id 1 as a reader of a store sees it now."""


def _transactions(setting: Setting) -> Iterable[Result]:
    sizes = (_ROWS, 1_000_000) if setting.full else (_ROWS, 100_000)
    with (
        bench_stack() as (running, context),
        backlog(running, context, flat(_ROWS)) as lot,
        sinks_on(lot, _STORES) as sinks,
        _readers(lot, sinks) as readers,
    ):
        wait_applied(lot, sinks)
        seconds = {size: _at_size(lot, readers, size, setting) for size in sizes}
        wrong = list(differences(lot, sinks))
    settings = {
        "rows_in_transaction": _ROWS,
        "change": "updates of all columns but four; the row that is waited for is the last to be written",
        "rows_in_table": sizes,
        **({"differences": wrong[:5]} if wrong else {}),
    }
    small, large = sizes
    for store in _STORES:
        least, most = (Side(tuple(found[store] for found in seconds[size])) for size in sizes)
        one = f"a transaction of {_ROWS:,} rows, from its commit until its last row is readable"
        more = f"the same in a table of {large:,} rows, against one of {small:,}"
        for name, what, sides in (
            ("transaction", one, {"headrace": least}),
            ("growth", more, {"headrace": most, f"{small:,} rows": least}),
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
def _readers(lot: Backlog, sinks: Mapping[str, str]) -> Iterator[dict[str, Read]]:
    registry, endpoints = Registry(lot.context.registry), lot.running.endpoints
    facts = {kind: next(iter(registry.sink(name).tables.values())) for name, kind in sinks.items()}
    key = facts["redis"]["key_template"].replace("{id}", "1")
    url = f"{endpoints.elasticsearch_url}/{facts['elasticsearch']['alias']}/_doc/1?_source_includes=quantity"
    with httpx.Client(timeout=30.0) as client, Redis.from_url(endpoints.redis_url) as redis:

        def document() -> int | None:
            answer = client.get(url)
            return int(answer.json()["_source"]["quantity"]) if answer.is_success else None

        def value() -> int | None:
            text: Any = redis.get(key)
            return int(orjson.loads(text)["quantity"]) if text else None

        yield {"elasticsearch": document, "redis": value}


def _at_size(
    lot: Backlog, readers: Mapping[str, Read], size: int, setting: Setting
) -> list[dict[str, float]]:
    """Fill the table up to ``size`` rows and time transactions; the first does not count."""
    with psycopg.connect(lot.dsn) as connection, ThreadPoolExecutor(len(readers)) as pool:
        row = connection.execute("SELECT max(id) FROM flat").fetchone()
        assert row is not None
        for first in range(row[0] + 1, size + 1, _CHUNK):
            connection.execute(wide_rows("flat", first, min(size, first + _CHUNK - 1)))
            connection.commit()
        found = []
        for number in range(setting.runs + 2):
            mark = size + number
            # The first waits for what filled the table, so it is a small one.
            rows = _ROWS - 1 if number else 1
            connection.execute(
                "UPDATE flat SET quantity = %s, note = md5(id::text || %s), amount = amount + 1,"
                " updated_at = now() WHERE id > %s",
                (mark, str(mark), size - rows),
            )
            connection.execute("UPDATE flat SET quantity = %s WHERE id = 1", (mark,))
            connection.commit()
            began = time.monotonic()
            waits = {store: pool.submit(_wait, read, mark, began) for store, read in readers.items()}
            found.append({store: wait.result() for store, wait in waits.items()})
            setting.say(f"{size:,} rows, {rows + 1:,} changed: {found[-1]}")
    return found[2:]


def _wait(read: Read, mark: int, began: float) -> float:
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
