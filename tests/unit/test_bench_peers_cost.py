"""What sides cost: processes with their children, several runs as one side."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.drain.meter import Meter
from tests.bench.drain.ours import Drained
from tests.bench.drain.stand import Sampled

_BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
_PARENT = f"""
import subprocess, sys
sys.stdin.readline()
subprocess.run([sys.executable, "-c", {_BURN!r}], check=True)
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_children_that_have_ended_are_counted(tmp_path: Path, parent: subprocess.Popen[str]) -> None:
    assert parent.stdin is not None
    assert parent.stdout is not None
    with Meter(tmp_path, {"peer": parent.pid}) as meter:
        parent.stdin.write("\n")
        parent.stdin.flush()
        parent.stdout.readline()
    assert meter.seconds["peer"] >= 0.3
    assert meter.per_million(100_000)["peer"] >= 3.0
    assert meter.peak_mib["peer"] > 1


def test_a_process_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with Meter(tmp_path, {"peer": gone.pid}) as meter:
        pass
    assert "peer" not in meter.seconds


def _meter(path: Path, seconds: float, peak: float) -> Meter:
    meter = Meter(path)
    meter.seconds["driver JVM"], meter.peak_mib["driver JVM"] = seconds, peak
    return meter


def test_runs_become_a_side_of_medians_and_peaks(tmp_path: Path) -> None:
    sampled = Sampled()
    for took, spent, peak in ((2.0, 0.2, 10.0), (4.0, 0.4, 30.0), (1.0, 0.9, 20.0)):
        sampled.add(Drained({"redis": took, "delta": took / 2}, _meter(tmp_path, spent, peak), ()), 1_000)
    side = sampled.side()
    assert side.samples == (500.0, 250.0, 1_000.0)
    assert side.processor_s == {"driver JVM": 400.0}
    assert side.peak_mib == {"driver JVM": 30.0}


def test_what_was_wrong_in_any_run_is_kept(tmp_path: Path) -> None:
    sampled = Sampled()
    for wrong in ((), ("a row is missing",), ()):
        sampled.add(Drained({"redis": 1.0}, _meter(tmp_path, 0.0, 0.0), wrong), 10)
    assert sampled.wrong == ["a row is missing"]
