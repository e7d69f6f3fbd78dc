"""What the engine and the watcher take of the processor while nobody writes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.bench.drain.meter import Meter
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.mirror import mirrored
from tests.support.stack import running_stack

__all__ = ["BENCHMARKS"]

_PARTS = {"watcher": ("watcher",), "engine": ("driver Python", "driver JVM", "Python workers")}
"""Result → the processes that count."""

_TABLES = 50
_COLUMNS = ", ".join(f"c{number} text" for number in range(12))
_SHAPE = [
    statement
    for number in range(_TABLES)
    for statement in (
        f"CREATE TABLE t{number} (id bigint PRIMARY KEY, {_COLUMNS})",
        f"INSERT INTO t{number} SELECT g, g::text FROM generate_series(1, 20) g",
    )
]

_BEAT = {"heartbeat_ms": 1_000}
_SETTLES_S = 60.0
_RUN_S = 20.0


def _measure(setting: Setting) -> Iterator[Result]:
    found: dict[str, list[float]] = {part: [] for part in _PARTS}
    with running_stack() as running, mirrored(running, "fifty", *_SHAPE, settings=_BEAT) as mirror:
        mirror.settle()
        time.sleep(_SETTLES_S)
        for _ in range(setting.runs):
            with Meter(running.home.run) as meter:
                time.sleep(_RUN_S)
            for part, names in _PARTS.items():
                used = meter.seconds[names[0]] + sum(meter.seconds.get(name, 0.0) for name in names[1:])
                found[part].append(round(100 * used / _RUN_S, 2))
    for part, shares in found.items():
        about = f"the {part} of one source and three sinks, over 50 tables, while nobody writes"
        settings = {"seconds a run": _RUN_S, "heartbeat": f"{_BEAT['heartbeat_ms'] / 1000:g} s"}
        yield Result(
            f"idle.{part}", about, "% of a core", {"headrace": Side(tuple(shares), {}, {})}, settings=settings
        )


BENCHMARKS = (
    Benchmark(
        "idle", "idle", 4.0, headline=False, run=_measure, promises=tuple(f"idle.{part}" for part in _PARTS)
    ),
)
