"""A demo that is cut short leaves nothing behind that stays in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.e2e.test_demo import assert_tidy, headrace, last_line
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(stack: RunningStack) -> Iterator[Start]:
    """Yield a function that starts a demo and returns when it has printed a given text."""
    command = [sys.executable, "-u", "-X", "faulthandler", "-c", "from headrace.cli.main import run; run()"]
    demos: list[subprocess.Popen[str]] = []

    def started(until: str) -> subprocess.Popen[str]:
        demo = subprocess.Popen(
            [*command, "demo", "--seconds", "300", "--scale", "0.05", "--home", str(stack.home.root)],
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
