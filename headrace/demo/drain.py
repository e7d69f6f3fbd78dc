"""Waiting until lag is zero and proven to be, and saying why it is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.control.context import Context
from headrace.control.lag import LagReport, State, measure
from headrace.model.errors import HeadraceError

__all__ = ["Waited", "behind", "drained", "wait"]

_PAUSE_S = 0.3
_GIVE_UP_S = 60.0
"""Twice the engine's longest pause between two tries of a failed query."""

_BROKEN = (State.FAILED, State.RESYNC_REQUIRED)


@dataclass(frozen=True, slots=True)
class Waited:
    """How a wait ended.

    Args:
        done: Whether what was waited for came true.
        report: The last look; None when not one succeeded.
        seconds: How long it took.
    """

    done: bool
    report: LagReport | None
    seconds: float


def wait(
    context: Context,
    done: Callable[[LagReport], bool],
    *,
    timeout: float,
    give_up: float = _GIVE_UP_S,
) -> Waited:
    """Look at lag until a look satisfies ``done``.

    Gives up after ``timeout`` seconds, and earlier when some part of the pipeline has been failed for
    ``give_up`` seconds without a break.
    """
    began = well_at = now = time.monotonic()
    report: LagReport | None = None
    while now - began < timeout and now - well_at < give_up:
        now = time.monotonic()
        try:
            report = measure(context)
        except HeadraceError:
            # A server does not answer: it may soon, and whoever waits hears of it in the end.
            time.sleep(_PAUSE_S)
            continue
        if done(report):
            return Waited(True, report, now - began)
        if not any(table.state in _BROKEN for table in report.tables):
            well_at = now
        time.sleep(_PAUSE_S)
    return Waited(False, report, now - began)


def drained(report: LagReport, closed_for: float) -> bool:
    """Return whether every table of every sink is proven to show a state of after the last write."""
    return report.in_sync and all(
        table.freshness_seconds is not None and table.freshness_seconds < closed_for
        for table in report.tables
    )


def behind(report: LagReport | None) -> str:
    """Return why lag is not zero, in one line: the first reason of every sink that is behind."""
    if report is None:
        return "nothing is known of the pipeline"
    reasons = []
    for sink in report.sinks:
        mine = [table for table in report.tables if table.sink == sink.sink]
        late = [table for table in mine if table.lag_records or table.reason]
        if late:
            first = late[0]
            reason = first.reason or f"{first.lag_records:,} records to apply"
            reasons.append(f"{sink.sink} {first.table} is {first.state.value} ({reason})")
    return "; ".join(reasons) or "no proof yet that the last writes have arrived"
