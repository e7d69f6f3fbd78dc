"""Waiting for what must come true."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.control import deadletters
from headrace.control.context import Context
from headrace.control.deadletters import Chosen
from headrace.demo.lookout import Lookout, behind, shows_all_since

__all__ = ["letters", "settle", "until"]


def until(
    true: Callable[[], bool], seconds: float = 150.0, *, why: Callable[[], object] = lambda: ""
) -> None:
    """Return as soon as something is true; fail if it does not come true in time, saying ``why``."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"it did not come true in time {why()}"
        time.sleep(0.2)


def settle(context: Context, seconds: float = 150.0) -> None:
    """Wait until it is proven that every sink shows what was committed until now; else fail, saying why."""
    # Longer than a driver takes to come back on a loaded machine, during which the sinks count as failed.
    last = Lookout(context).wait(shows_all_since(time.monotonic()), timeout=seconds, give_up=seconds)
    assert last.done, "\n".join([behind(last.report), *letters(context)])


def letters(context: Context) -> list[str]:
    """Return what waits in the dead letter queue, and why."""
    found = deadletters.letters(context, Chosen())
    return [f"{one.sink} {one.table} {one.row}: {one.reason}" for one in found]
