"""``python -m tests.bench``: figures of the whole chain on this machine; reported, never asserted.

    python -m tests.bench                 warm demo, latency on a stack, applying against raw clients
    python -m tests.bench --cold          a demo with empty caches first: everything is downloaded
    python -m tests.bench --seconds 120   measure latency for longer
    python -m tests.bench --only apply    the sinks against the raw clients of their stores, nothing else
    python -m tests.bench --json FILE     write the figures there, too

The last line of standard output is all of it as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from headrace.demo.memory import MemoryWatch
from headrace.demo.original import Original
from headrace.demo.probe import MARKED, Latencies, Markers
from tests.bench.apply.stores import measure_apply, print_apply
from tests.support.shop import Shop, open_shop
from tests.support.stack import fresh_home, running_stack

_LOADS = {"light": 0.0, "steady": 20.0}
"""Row changes per second beside the markers, of which there are some three a second."""

_ASK_EVERY_S = {"search": 0.02, "cache": 0.01, "lake": 0.05}
"""Asking costs processor time, too: more often, and the question delays the answer."""

_WARM_UP_S = 60.0


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--cold", action="store_true", help="begin with empty caches; downloads about 1 GB")
    parser.add_argument("--seconds", type=float, default=45.0, help="how long to measure each load")
    parser.add_argument("--only", choices=("demo", "latency", "apply"), help="measure only this")
    parser.add_argument("--rounds", type=int, default=7, help="how often to apply the same rows")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    chosen = parser.parse_args()
    console = Console(stderr=True)
    figures: dict[str, Any] = {"machine": _machine()}
    if chosen.cold:
        with tempfile.TemporaryDirectory(prefix="headrace-cold-", dir="/var/tmp") as empty:
            # Postgres, which refuses root, runs from there as another user.
            Path(empty).chmod(0o755)
            console.print("demo, cold: caches are empty")
            figures["cold_demo"] = _demo({"HEADRACE_CACHE": empty})
    if chosen.only in (None, "demo"):
        console.print("demo, warm")
        figures["warm_demo"] = _demo({})
    if chosen.only in (None, "latency"):
        console.print(f"latency: a warm-up of {_WARM_UP_S:.0f} s, then {chosen.seconds:.0f} s of each load")
        figures |= _latency(chosen.seconds)
    if chosen.only in (None, "apply"):
        console.print(f"apply: {chosen.rounds} rounds of each store")
        figures["apply"] = measure_apply(chosen.rounds, console.print)
    _print(console, figures)
    text = json.dumps(figures)
    if chosen.json:
        chosen.json.write_text(text + "\n")
    print(text)


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_mib": psutil.virtual_memory().total >> 20,
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def _demo(environment: dict[str, str]) -> dict[str, Any]:
    """Run the command in a home of its own and return its verdict and where the memory went."""
    with fresh_home() as home:
        report = home.root.parent / "report.json"
        command = [sys.executable, "-c", "from headrace.cli.main import run; run()", "demo", "--json"]
        began = time.monotonic()
        done = subprocess.run(
            [*command, "--home", str(home.root), "--report", str(report)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            check=False,
        )
        took = round(time.monotonic() - began, 1)
        if not report.exists():
            return {"failed": done.returncode, "seconds": took}
        details: dict[str, Any] = json.loads(report.read_text())
    details.pop("comparisons")
    return {**details, "seconds_with_cleanup": took}


def _latency(seconds: float) -> dict[str, Any]:
    """Return what each load measured, and the memory of a stack without a demo."""
    with running_stack() as running, open_shop(running, "bench", scale=1.0) as shop:
        memory = MemoryWatch(running.home.run)
        memory.start()
        # The first batches after the snapshot meet cold code.
        shop.write(_WARM_UP_S, seed=1, rate=_LOADS["steady"])
        shop.converge()
        figures: dict[str, Any] = {}
        for load, rate in _LOADS.items():
            found = _markers(shop, seconds, rate)
            figures[load] = {
                "changes_per_second": rate,
                "latency_ms": {name.removeprefix("bench_"): times.as_dict() for name, times in found.items()},
            }
        figures["stack"] = {
            "peak_mib": memory.stop(),
            "memory_mib": {name: peak for name, peak in memory.peaks.items() if name != "demo"},
        }
    return figures


def _markers(shop: Shop, seconds: float, rate: float) -> dict[str, Latencies]:
    with Original.open(shop.dsn) as original:
        marked = next(schema for schema in original.tables() if schema.table.name == MARKED)
    with shop.stores() as stores:
        pauses = {store: _ASK_EVERY_S[store.name.removeprefix("bench_")] for store in stores}
        people = shop.people(seed=2, rate=rate) if rate else None
        if people is not None:
            people.start()
        markers = Markers(shop.dsn, marked, pauses, every=0.35)
        markers.start()
        time.sleep(seconds)
        found = markers.stop(patience=30)
        if people is not None:
            people.stop()
    return found


def _print(console: Console, figures: dict[str, Any]) -> None:
    table = Table("figure", "search", "cache", "lake", box=None)
    for name in ("cold_demo", "warm_demo"):
        if "seconds_to_first_row" in figures.get(name, {}):
            first = figures[name]["seconds_to_first_row"]
            table.add_row(f"{name}: s to first row", *(str(first[s]) for s in ("search", "cache", "lake")))
    for name in ("warm_demo", *_LOADS):
        measured = figures.get(name, {}).get("latency_ms")
        for rank in ("p50", "p99") if measured else ():
            table.add_row(
                f"{name}: {rank} ms", *(str(measured[s][rank]) for s in ("search", "cache", "lake"))
            )
    console.print(table)
    for name in ("cold_demo", "warm_demo", "stack"):
        if "memory_mib" in figures.get(name, {}):
            console.print(f"{name}: peak MiB {figures[name]['memory_mib']}")
    if "apply" in figures:
        print_apply(console, figures["apply"])


if __name__ == "__main__":
    main()
