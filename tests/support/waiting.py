"""Waiting for what must come true."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.control import lag
from headrace.control.context import Context

__all__ = ["proven_since", "settle", "until"]


def until(true: Callable[[], bool], seconds: float = 150.0, why: Callable[[], object] | None = None) -> None:
    """Return as soon as something is true; fail with ``why`` if it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, (
            f"it did not come true: {why() if why else 'nothing more is known'}"
        )
        time.sleep(0.2)


def proven_since(context: Context, moment: float) -> bool:
    """Whether lag says ``in_sync`` of everything that was committed before a Unix time."""
    report = lag.measure(context)
    # What is rounded may seem half a second younger.
    proven = (report.at_ms / 1000 - 0.5 - (table.freshness_seconds or 0.0) for table in report.tables)
    return report.in_sync and min(proven) >= moment


def settle(context: Context) -> None:
    """Wait until lag says ``in_sync`` of everything that was committed before now."""
    moment = time.time()
    until(lambda: proven_since(context, moment))
