"""What a failed test on real servers leaves to be read without the machine.

The report of the failure gets, for each stack that runs: `lag --json`, the dead letters, and the last lines
of the engine's and the servers' logs, and those of servers that the test has started by itself. Of a Connect
that does not answer it also gets what its threads do.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from headrace.local.endpoints import endpoints_of
from headrace.local.home import Home
from headrace.local.java import java_home
from headrace.model.errors import HeadraceError
from headrace.observe import pidfile
from tests.support.own_servers import LOGS, tail
from tests.support.stack import HOMES

__all__ = ["pytest_runtest_makereport", "told_by"]

_PATIENCE_S = 60
_MOST = 20_000
_ANSWERS_S = 5
_FRAMES = 14
_AT_WORK = ("DistributedHerder", "StartAndStop", "connector-thread", "task-thread", "KafkaBasedLog")
"""How the names begin of those of Connect's threads that others wait for."""


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
    told = []
    if threads := _hung(home):  # first: it may answer soon
        told.append(("threads of Connect, which does not answer", threads))
    told += [
        (f"headrace {' '.join(words)}", _asked(home, *words))
        for words in (("lag", "--json"), ("dlq", "list", "--json"))
    ]
    told += [(f"the end of {log.name}", tail(log)) for log in sorted(home.logs.rglob("*.log"))]
    return told


def _asked(home: Home, *words: str) -> str:
    return _run([str(Path(sys.executable).with_name("headrace")), "--home", str(home.root), *words])[-_MOST:]


def _run(command: list[str]) -> str:
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
    return done.stdout + done.stderr


def _hung(home: Home) -> str:
    """Return what Connect's threads do when it does not answer; empty when it does, or does not run."""
    pid = pidfile.alive(home.pidfile("connect"))
    if pid is None:
        return ""
    try:
        with httpx.Client(trust_env=False, timeout=_ANSWERS_S) as client:
            # One thread answers that does everything else, too, one after the other.
            if not client.get(f"{endpoints_of(home).connect_url}/connectors").is_server_error:
                return ""
        told = _threads(pid)
    except httpx.HTTPError:
        told = _threads(pid)
    except HeadraceError as error:  # a test has damaged what the home says
        return str(error)
    stacks = [stack.splitlines() for stack in told.split("\n\n")]
    mine = [
        stack[:_FRAMES] for stack in stacks if stack and stack[0].startswith(tuple(f'"{n}' for n in _AT_WORK))
    ]
    return ("\n\n".join("\n".join(stack) for stack in mine) or told)[-_MOST:]


def _threads(pid: int) -> str:
    try:
        return _run([str(java_home() / "bin" / "jcmd"), str(pid), "Thread.print"])
    except (HeadraceError, OSError) as error:  # a Java without it
        return str(error)
