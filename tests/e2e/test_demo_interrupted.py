"""A demo that is cut short leaves nothing behind that stays in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from headrace.cli.context import open_context
from headrace.control.registry import Registry
from headrace.local.stack import Stack
from tests.e2e.test_demo import assert_tidy, headrace, last_line
from tests.support.database import fresh_database
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack, fresh_home

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(stack: RunningStack) -> Iterator[Start]:
    """Yield a function that starts a demo and returns when it has printed a given text."""
    command = [sys.executable, "-u", "-X", "faulthandler", "-c", "from headrace.cli.main import run; run()"]
    demos: list[subprocess.Popen[str]] = []

    def started(until: str, home: Path = stack.home.root) -> subprocess.Popen[str]:
        demo = subprocess.Popen(
            [*command, "demo", "--seconds", "300", "--scale", "0.05", "--home", str(home)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Whoever runs the tests in the background has made them, and so the demo, deaf to Ctrl-C.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        demos.append(demo)
        assert demo.stdout is not None
        heard = []
        for line in demo.stdout:
            heard.append(line)
            if until in line:
                return demo
        raise AssertionError("".join(heard))

    yield started
    for demo in demos:
        demo.kill()
        demo.communicate()


def told_at_the_end(demo: subprocess.Popen[str]) -> str:
    try:
        return demo.communicate(timeout=WAIT_S)[0]
    except subprocess.TimeoutExpired:
        demo.send_signal(signal.SIGABRT)  # its threads say where they are
        raise AssertionError(f"it does not end:\n{demo.communicate()[0]}") from None


@pytest.mark.deep
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "starting the connector"),
        pytest.param(signal.SIGTERM, "starting to apply", marks=pytest.mark.deep),
    ],
)
def test_asked_to_end_it_tidies_up(
    stack: RunningStack, start: Start, number: signal.Signals, moment: str
) -> None:
    demo = start(moment)
    second = headrace(stack, "demo")
    assert (second.returncode, "DEMO_RUNS" in second.stderr) == (2, True), second.stderr
    demo.send_signal(number)
    said = told_at_the_end(demo)
    assert demo.returncode == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    assert "INTERNAL" not in said
    assert_tidy(stack)


@pytest.mark.deep
def test_killed_it_is_cleared_away_by_the_next(stack: RunningStack, start: Start) -> None:
    demo = start("starting the connector")
    os.kill(demo.pid, signal.SIGKILL)
    demo.wait()
    done = headrace(stack, "demo", "--seconds", "2", "--scale", "0.02")
    assert done.returncode == 0, done.stdout + done.stderr
    assert last_line(done)["in_sync"] is True
    assert_tidy(stack)


@pytest.mark.deep
def test_in_a_home_that_it_made_it_leaves_what_somebody_else_has_registered_meanwhile(start: Start) -> None:
    with fresh_home() as home:
        demo = start("starting the connector", home.root)
        own = RunningStack(Stack(home), Stack(home).endpoints())
        with fresh_database(own.endpoints.postgres_dsn, "theirs") as database:
            database.run("CREATE TABLE t (id int PRIMARY KEY)")
            added = headrace(own, "source", "add", "theirs", database.dsn, "--no-wait")
            demo.send_signal(signal.SIGINT)
            assert added.returncode == 0, added.stderr + told_at_the_end(demo)
            assert "the servers run on for source theirs" in told_at_the_end(demo)
            assert_tidy(own)
            assert Registry(open_context(home.root).registry).source("theirs")
            removed = headrace(own, "source", "remove", "theirs", "--yes")
            assert removed.returncode == 0, removed.stderr
