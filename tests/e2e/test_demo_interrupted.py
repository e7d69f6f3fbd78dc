"""A demo that is cut short leaves nothing behind that stays in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import pytest

from headrace.cli.context import open_context
from headrace.control.registry import Registry
from tests.e2e.test_demo import assert_tidy, headrace, last_line
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]


@pytest.fixture
def running(stack: RunningStack) -> Iterator[subprocess.Popen[str]]:
    """Yield a demo whose source is registered and whose stores are being filled."""
    command = [sys.executable, "-u", "-c", "from headrace.cli.main import run; run()", "demo"]
    demo = subprocess.Popen(
        [*command, "--seconds", "300", "--scale", "0.05", "--home", str(stack.home.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Whoever runs the tests in the background has made them, and so the demo, deaf to Ctrl-C.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    registry = Registry(open_context(stack.home.root).registry)
    try:
        deadline = time.monotonic() + 120
        while not registry.sources() and demo.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert registry.sources(), demo.communicate(timeout=5)[0]
        yield demo
    finally:
        demo.kill()
        demo.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_end_it_tidies_up(
    stack: RunningStack, running: subprocess.Popen[str], number: signal.Signals
) -> None:
    running.send_signal(number)
    said = running.communicate(timeout=120)[0]
    assert running.returncode == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    assert_tidy(stack)


@pytest.mark.deep
def test_killed_it_is_cleared_away_by_the_next(stack: RunningStack, running: subprocess.Popen[str]) -> None:
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    done = headrace(stack, "demo", "--seconds", "2", "--scale", "0.02")
    assert done.returncode == 0, done.stdout + done.stderr
    assert last_line(done)["in_sync"] is True
    assert_tidy(stack)
