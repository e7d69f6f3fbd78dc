"""What a failed test on real servers leaves to be read without the machine.

The report of the failure gets, for each stack that runs: `lag --json`, the dead letters, and the last lines
of the engine's and the servers' logs, and those of servers that the test has started by itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from headrace.local.home import Home
from tests.support.own_servers import LOGS, tail
from tests.support.stack import HOMES

__all__ = ["pytest_runtest_makereport", "told_by"]

_PATIENCE_S = 60
_MOST = 20_000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and item.get_closest_marker("stack"):
        for home in HOMES:
            report.sections += told_by(home)
        report.sections += [(f"the end of {log}", tail(log)) for log in LOGS]
    return report


def told_by(home: Home) -> list[tuple[str, str]]:
    """Return what a stack says of itself: title and text, each bounded."""
    told = [
        (f"headrace {' '.join(words)}", _asked(home, *words))
        for words in (("lag", "--json"), ("dlq", "list", "--json"))
    ]
    told += [(f"the end of {log.name}", tail(log)) for log in sorted(home.logs.rglob("*.log"))]
    return told


def _asked(home: Home, *words: str) -> str:
    command = [str(Path(sys.executable).with_name("headrace")), "--home", str(home.root), *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            timeout=_PATIENCE_S,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {_PATIENCE_S} s"
    return (done.stdout + done.stderr)[-_MOST:]
