"""Looking at lag without tiring the machine, waiting until it is zero and proven so, saying why it is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.lag import LagReport, State, measure
from headrace.model.errors import HeadraceError

__all__ = ["Look", "Lookout", "Waited", "behind", "filled", "shows_all_since"]

_PAUSE_S = 0.2
_GIVE_UP_S = 60.0
"""Twice the engine's longest pause between two tries of a failed query."""

_BROKEN = (State.FAILED, State.RESYNC_REQUIRED)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at lag.

    Args:
        report: What was seen.
        began: When the look began, by :func:`time.monotonic`; nothing in the report is older.
    """

    report: LagReport
    began: float


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


class Lookout:
    """Looks at lag for all who want to know; a look costs a tenth of a second of a core, so it is shared."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kafka = Kafka(context.kafka_bootstrap)
        self._lock = threading.Lock()
        self._last: Look | None = None

    def look(self, *, within: float) -> Look | None:
        """Return a look that began at most ``within`` seconds ago; None when no server answers."""
        with self._lock:
            began = time.monotonic()
            if self._last is None or began - self._last.began > within:
                try:
                    self._last = Look(measure(self._context, self._kafka), began)
                except HeadraceError:
                    # Who waits hears of it in the end; who shows goes on showing what was.
                    return None
            return self._last

    def wait(
        self,
        done: Callable[[Look], bool],
        *,
        timeout: float,
        every: float = 0.5,
        give_up: float = _GIVE_UP_S,
    ) -> Waited:
        """Look until a look satisfies ``done``.

        Gives up after ``timeout`` seconds, and earlier when some part of the pipeline has been failed
        for ``give_up`` seconds without a break.
        """
        began = well_at = now = time.monotonic()
        report: LagReport | None = None
        while now - began < timeout and now - well_at < give_up:
            now = time.monotonic()
            look = self.look(within=every)
            if look is not None:
                report = look.report
                if done(look):
                    return Waited(True, report, now - began)
            if look is None or not any(table.state in _BROKEN for table in look.report.tables):
                well_at = now
            time.sleep(_PAUSE_S)
        return Waited(False, report, now - began)


def filled(look: Look) -> bool:
    """Return whether every table of every sink is in sync."""
    return look.report.in_sync


def shows_all_since(moment: float) -> Callable[[Look], bool]:
    """Return a test whether it is proven that every sink shows everything committed before ``moment``."""
    return lambda look: look.report.shows(look.began - moment)


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
