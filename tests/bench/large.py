"""One transaction of a million rows: what the engine holds of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from tests.bench.drain.backlog import backlog
from tests.bench.drain.ours import drain
from tests.bench.drain.stand import bench_stack
from tests.bench.drain.versions import stack_versions
from tests.bench.drain.workloads import Workload, flat, wide_rows
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARKS"]

_ROWS = 1_000_000
_JVM = "driver JVM"
_NAME = "large.transaction_1m"


def _at_once(rows: int) -> Workload:
    def write(connection: psycopg.Connection[Any]) -> int:
        connection.execute(wide_rows("flat", 1, rows))
        connection.commit()
        return rows

    return Workload("large", f"{rows:,} inserts in one transaction", ("flat",), flat(1).ddl, write)


def _measure(setting: Setting) -> Iterator[Result]:
    with bench_stack() as (running, context), backlog(running, context, _at_once(_ROWS)) as lot:
        setting.say(f"{_ROWS:,} rows in Kafka {lot.captured_s:.0f} s after their commit")
        done = drain(lot, ["redis"])
    yield Result(
        _NAME,
        "one transaction of a million inserts applied to Redis: the most memory of a JVM of 1 GiB heap",
        "MiB",
        {"headrace": Side((done.meter.peak_mib[_JVM],), done.meter.per_million(_ROWS), done.meter.peak_mib)},
        equal=not done.wrong,
        versions=stack_versions(),
        settings={
            "changes": lot.changes,
            "seconds from commit to Kafka": lot.captured_s,
            "seconds to apply": round(done.slowest, 1),
            "differences": done.wrong[:5],
        },
    )


BENCHMARKS = (Benchmark(_NAME, "large", 5.0, headline=False, run=_measure),)
