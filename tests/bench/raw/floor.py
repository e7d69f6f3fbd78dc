"""What a micro-batch costs in which nothing is done."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from tests.bench.raw.driver import apart, session_in
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARKS"]

_WARM_UP_S = 10.0
_RUN_S = 8.0
_PHASES = {
    "triggerExecution": "the whole batch",
    "latestOffset": "asking what there is",
    "queryPlanning": "planning",
    "walCommit": "noting what will be done",
    "addBatch": "doing it: one call of Python",
    "commitOffsets": "noting that it is done",
}


def _measure(setting: Setting) -> Iterator[Result]:
    yield apart(_idle, setting.runs)


def _idle(runs: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        session = session_in(Path(folder))
        query = (
            session.readStream.format("rate")
            .option("rowsPerSecond", 1)
            .load()
            .writeStream.option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(processingTime="0 seconds")
            .foreachBatch(_nothing)
            .start()
        )
        time.sleep(_WARM_UP_S)
        samples: dict[str, list[float]] = {name: [] for name in _PHASES.values()}
        batches = 0
        for _ in range(runs):
            seen = _last(query.recentProgress)
            time.sleep(_RUN_S)
            fresh = [p for p in query.recentProgress if p["batchId"] > seen]
            batches += len(fresh)
            for phase, name in _PHASES.items():
                samples[name].append(statistics.median(p["durationMs"].get(phase, 0) for p in fresh))
        query.stop()
        session.stop()
    return Result(
        "raw.floor",
        "a query of one row a second with which nothing is done, by phase; medians of each run's batches",
        "ms",
        {name: Side(tuple(found)) for name, found in samples.items()},
        versions={"PySpark": version("pyspark")},
        settings={"batches": batches, "trigger": "as soon as there is something"},
    )


def _nothing(_frame: DataFrame, _batch: int) -> None:
    """Leave the batch unread."""


def _last(progress: list[Any]) -> int:
    return max((int(p["batchId"]) for p in progress), default=-1)


BENCHMARKS = (Benchmark("raw.floor", "raw", 1.0, headline=False, run=_measure),)
