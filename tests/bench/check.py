"""How long ``source check``, and a look of the watcher, take on a database of many partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.control import source_check
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.servers import MAJORS, postgres_server

__all__ = ["BENCHMARKS"]

_TABLES, _PARTITIONS = 1_000, 10
_AT_ONCE = 50
"""So many tables in a transaction: each takes locks, and a server has room for some thousands."""

_ROWS = 20
"""In each partition: the check looks at the values of dates, times, numbers and arrays."""

_COLUMNS = "id bigint, made date, at timestamptz, price numeric(12, 2), tags text[], note text"
_MAKE = f"""
DO $$ BEGIN
  FOR t IN {{first}}..{{last}} LOOP
    EXECUTE format('CREATE TABLE t%s ({_COLUMNS}, PRIMARY KEY (id, made)) PARTITION BY LIST (made)', t);
    FOR p IN 1..{_PARTITIONS} LOOP
      EXECUTE format('CREATE TABLE t%s_%s PARTITION OF t%s FOR VALUES IN (%L)', t, p, t, '2026-01-01'::date + p);
    END LOOP;
    EXECUTE format('INSERT INTO t%s SELECT i, ''2026-01-01''::date + 1 + i %% {_PARTITIONS}, now(), i, ''{{{{a,b}}}}'', ''n''
                    FROM generate_series(1, {_PARTITIONS * _ROWS}) i', t);
  END LOOP;
END $$
"""  # noqa: E501


def _measure(setting: Setting) -> Iterator[Result]:
    samples: list[float] = []
    looks: list[float] = []
    refused = 0
    with postgres_server(MAJORS[0], "wal_level=logical", "fsync=off", "max_locks_per_transaction=512") as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for first in range(1, _TABLES + 1, _AT_ONCE):
                connection.execute(_MAKE.format(first=first, last=first + _AT_ONCE - 1).encode())
        for _ in range(setting.runs + 1):  # the first one warms the server up
            began = time.monotonic()
            found = source_check.check(dsn)
            samples.append(round(time.monotonic() - began, 2))
            refused = sum(one.severity is Severity.ERROR for one in found)
        looks.extend(_looks(dsn, setting.runs + 1))
    about = f"`source check` of {_TABLES:,} tables with {_TABLES * _PARTITIONS:,} partitions"
    yield Result(
        "check.partitions",
        about,
        "s",
        {"headrace": Side(tuple(samples[1:]))},
        settings={
            "tables": f"{_TABLES:,}",
            "partitions": f"{_TABLES * _PARTITIONS:,}",
            "rows": f"{_TABLES * _PARTITIONS * _ROWS:,}",
        },
        failure=f"{refused} refusals" if refused else None,
    )
    yield Result(
        "look.partitions",
        f"a look of the watcher at {_TABLES:,} tables with {_TABLES * _PARTITIONS:,} partitions",
        "s",
        {"headrace": Side(tuple(looks[1:]))},
        settings={"tables": f"{_TABLES:,}", "partitions": f"{_TABLES * _PARTITIONS:,}"},
    )


def _looks(dsn: str, times: int) -> Iterator[float]:
    """Yield how long each of some looks takes, seconds; all but the first compare with the one before."""
    source = PostgresSource(dsn)
    tables = [TableId("public", f"t{number}") for number in range(1, _TABLES + 1)]
    capture = Capture("looked", tuple(source.catalogue(tables)), "looked", "")
    source.setup(capture)
    watch = source.watch(capture)
    facts: Mapping[str, Any] = {}
    for _ in range(times):
        began = time.monotonic()
        facts = watch.look(facts).facts
        yield round(time.monotonic() - began, 2)
    watch.close()


BENCHMARKS = (
    Benchmark(
        "check", "check", 2.0, headline=False, run=_measure, promises=("check.partitions", "look.partitions")
    ),
)
