"""Looks at ``lag`` all the while: what it says beside what is so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.lag import LagReport, TableLag, measure
from headrace.model.errors import HeadraceError
from tests.support.patience import WAIT_S

__all__ = ["Seen", "Watched", "watched"]

NOTICED_S = 4.0
"""The heartbeat's interval and two seconds, and as long as it takes to look."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look.

    Attributes:
        began: When it began, by the monotonic clock.
        report: What it saw.
        equal: Whether what was watched was as it is to be, before the look or after it.
    """

    began: float
    report: LagReport
    equal: bool


@dataclass
class Watched:
    """All looks since the watching began."""

    looks: list[Seen] = field(default_factory=list)

    @property
    def false_greens(self) -> list[float]:
        """For how long something had been missing, of the looks that were in sync nevertheless."""
        wrong_since: float | None = None
        found = []
        for look in self.looks:
            if look.equal:
                wrong_since = None
                continue
            wrong_since = look.began if wrong_since is None else wrong_since
            if look.report.in_sync:
                found.append(look.began - wrong_since)
        return [age for age in found if age > NOTICED_S]

    def words(self, sink: str, table: str) -> list[TableLag]:
        """Return what was said of one table at one sink."""
        return [
            said
            for look in self.looks
            for said in look.report.tables
            if (said.sink, said.table) == (sink, table)
        ]


@contextmanager
def watched(context: Context, equal: Callable[[], bool], every: float = 0.3) -> Iterator[Watched]:
    """Yield what is seen while the context is open; fail at its end if nobody could look."""
    over, seen, kafka = threading.Event(), Watched(), Kafka(context.kafka_bootstrap)
    ended: list[Exception] = []

    def look() -> None:
        while not over.wait(every):
            before = equal()
            began = time.monotonic()
            try:
                report = measure(context, kafka)
            except HeadraceError:
                continue
            seen.looks.append(Seen(began, report, before or equal()))

    def looking() -> None:
        try:
            look()
        except Exception as error:  # noqa: BLE001 - who watches is told of it
            ended.append(error)

    thread = threading.Thread(target=looking, name="watched", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(WAIT_S)
    assert seen.looks, f"nobody could look: {ended}"
    assert not ended, f"nobody looked to the end: {ended}"
