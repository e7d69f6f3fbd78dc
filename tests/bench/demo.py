"""``headrace demo`` as a first user sees it: until the first row, and until the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.stack import fresh_home

__all__ = ["BENCHMARKS"]

_STORES = ("search", "cache", "lake")
_DEMOS = 2
"""It is told for orientation; whoever waits for it waits a minute each time."""
_COMMAND = (sys.executable, "-c", "from headrace.cli.main import run; run()", "demo", "--json")


def _warm(setting: Setting) -> Iterator[Result]:
    yield from _results("warm", [_demo({}) for _ in range(min(setting.runs, _DEMOS))])


def _cold(_: Setting) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="headrace-cold-", dir="/var/tmp") as empty:
        # Postgres, which refuses root, runs from there as another user.
        Path(empty).chmod(0o755)
        yield from _results("cold", [_demo({"HEADRACE_CACHE": empty})])


def _demo(environment: Mapping[str, str]) -> dict[str, Any]:
    """Run the command in a home of its own and return its verdict.

    Raises:
        RuntimeError: It did not come so far.
    """
    with fresh_home() as home:
        report = home.root.parent / "report.json"
        began = time.monotonic()
        done = subprocess.run(
            [*_COMMAND, "--home", str(home.root), "--report", str(report)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            check=False,
        )
        if not report.exists():
            raise RuntimeError(f"the demo ended with exit code {done.returncode} and no report")
        found: dict[str, Any] = json.loads(report.read_text())
    return {**found, "whole": round(time.monotonic() - began, 1)}


def _results(name: str, demos: list[dict[str, Any]]) -> Iterator[Result]:
    first, whole = _names(name)
    equal = all(demo["in_sync"] for demo in demos)
    peaks = {
        process: max(demo["memory_mib"].get(process, 0.0) for demo in demos)
        for demo in demos
        for process in demo["memory_mib"]
    }
    caches = "empty: everything is downloaded" if name == "cold" else "filled"
    yield Result(
        first,
        "from the command to the first row that a reader of each store has",
        "s",
        {store: Side(tuple(demo["seconds_to_first_row"][store] for demo in demos)) for store in _STORES},
        equal=equal,
        settings={"caches": caches},
    )
    yield Result(
        whole,
        "the whole command: seeding, capturing, writing, and the comparison of every row",
        "s",
        {"headrace": Side(tuple(demo["whole"] for demo in demos), peak_mib=peaks)},
        equal=equal,
        settings={"caches": caches, "peak of all together, MiB": max(d["peak_rss_mib"] for d in demos)},
    )


def _names(name: str) -> tuple[str, str]:
    return f"demo.{name}.first_row", f"demo.{name}.whole"


BENCHMARKS = (
    Benchmark("demo.warm", "demo", 4.0, headline=False, run=_warm, promises=_names("warm")),
    Benchmark("demo.cold", "demo", 4.0, headline=False, run=_cold, promises=_names("cold")),
)
