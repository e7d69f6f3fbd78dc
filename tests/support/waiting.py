"""Waiting for what must come true, for what must stay true, for time to pass. No test sleeps elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from subprocess import Popen
from threading import Thread
from typing import Any

from headrace.control import deadletters
from headrace.control.context import Context
from headrace.control.deadletters import Chosen
from headrace.demo.lookout import Lookout, behind, shows_all_since
from tests.support.patience import LEAST_S, PATIENCE

__all__ = ["elapse", "ended", "letters", "settle", "stays", "until"]

_LOOK_S = 0.2


def until(
    true: Callable[[], object], seconds: float = LEAST_S, *, why: Callable[[], object] = lambda: ""
) -> None:
    """Return as soon as something is true; fail if it does not come true in time, saying ``why``.

    ``seconds`` may ask for more than :data:`LEAST_S`, never for less.
    """
    deadline = time.monotonic() + max(seconds, LEAST_S) * PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"it did not come true in time {why()}"
        time.sleep(_LOOK_S)


def stays(true: Callable[[], object], seconds: float, *, why: Callable[[], object] = lambda: "") -> None:
    """Fail as soon as something is not true at one of the looks of so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        assert true(), f"it did not stay true {why()}"
        if time.monotonic() >= deadline:
            return
        time.sleep(_LOOK_S)


def ended(work: Thread | Popen[Any], seconds: float = LEAST_S) -> int:
    """Wait until a thread or a process has ended; return the code of the process, 0 for a thread."""
    patience = max(seconds, LEAST_S) * PATIENCE
    if isinstance(work, Thread):
        work.join(patience)
        assert not work.is_alive(), f"{work.name} did not end in time"
        return 0
    return work.wait(patience)


def elapse(seconds: float) -> None:
    """Let time pass, where the test is about that: an age is reached, people go on writing."""
    time.sleep(seconds)


def settle(context: Context, seconds: float = LEAST_S) -> None:
    """Wait until it is proven that every sink shows what was committed until now; else fail, saying why."""
    patience = max(seconds, LEAST_S) * PATIENCE
    last = Lookout(context).wait(shows_all_since(time.monotonic()), timeout=patience, give_up=patience)
    assert last.done, "\n".join([behind(last.report), *letters(context)])


def letters(context: Context) -> list[str]:
    """Return what waits in the dead letter queue, and why."""
    found = deadletters.letters(context, Chosen())
    return [f"{one.sink} {one.table} {one.row}: {one.reason}" for one in found]
