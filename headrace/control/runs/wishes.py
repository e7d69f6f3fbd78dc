"""What people want of a run: noted in one transaction with the phase in which it is possible."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.control.context import Context
from headrace.control.registry import Registry, ResnapshotEntry, SourceEntry, SourceTableEntry
from headrace.control.runs.passed import passed_by, swept_now
from headrace.control.runs.repository import ACTIVE, RESTING, Phase, refuse_former

__all__ = ["ending", "go_on", "may_rest", "want_end", "wish"]

_POLL_S = 0.2


@contextmanager
def ending(context: Context, source: str, heed: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Wait until nobody else ends a run of a source on which nobody works, and keep others away.

    Args:
        context: The installation.
        source: The source.
        heed: Called while somebody else does; it may raise.
    """
    context.run.mkdir(parents=True, exist_ok=True)
    with (context.run / f"ending-{source}.lock").open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                heed()
                time.sleep(_POLL_S)
        yield


def wish(registry: Registry, name: str, wanted: str) -> ResnapshotEntry:
    """Note what a person wants of a run that is under way; one that is over, or is to end, is left alone."""
    with registry.begin() as session:
        run = session.get_one(ResnapshotEntry, name)
        if Phase(run.phase) in ACTIVE and run.wanted != "abort":
            run.wanted = wanted
        return run


def want_end(registry: Registry, name: str, *, unfinished: bool = False) -> ResnapshotEntry:
    """Note that a run is to end, unless it is over; from then on it does not go on.

    Args:
        registry: The installation's registry.
        name: The run.
        unfinished: Only one that is, for another has read its tables.
    """
    among = (Phase.UNFINISHED,) if unfinished else (*ACTIVE, *RESTING)
    with registry.begin() as session:
        run = session.get_one(ResnapshotEntry, name)
        if Phase(run.phase) in among:
            run.wanted = "abort"
        return run


def may_rest(registry: Registry, name: str) -> None:
    """Take back that a run is to end which nobody works on, and which could not be ended."""
    with registry.begin() as session:
        run = session.get_one(ResnapshotEntry, name)
        if Phase(run.phase) in RESTING:
            run.wanted = ""


def go_on(registry: Registry, name: str, *, sweep_many: bool, **pace: int | None) -> ResnapshotEntry:
    """Have a run go on where it was, at another ``pace`` if need be.

    One that is over, or is to end, is left alone.
    """
    with registry.begin() as session:
        run = session.get_one(ResnapshotEntry, name)
        phase = Phase(run.phase)
        if phase in (Phase.COMPLETED, Phase.ABORTED) or run.wanted == "abort":
            return run
        refuse_former(run)
        plan = {**run.plan, **pace, **({"sweep_many": True} if sweep_many else {})}
        if phase is Phase.UNFINISHED:
            phase = Phase.SWEEPING
        elif phase is Phase.FAILED:  # what it was told may not be all there is
            phase = Phase.QUEUED
            tables = session.get_one(SourceEntry, run.source).tables
            # What it had swept stays swept at sinks that go on; those that come later have to know.
            plan["passed"] = {topic: [*told] for topic, told in passed_by(run, tables).items()}
            plan["swept"] = _swept(run, tables)
            plan |= {"marks": {}, "asked": False, "ends": None, "goes": {}}
        run.plan, run.phase, run.wanted = plan, phase.value, ""
        run.error, run.reason, run.ended_ms = None, "", None
        return run


def _swept(run: ResnapshotEntry, tables: Sequence[SourceTableEntry]) -> dict[str, dict[str, Any]]:
    """Return sink → topic → the marks and ends by which the run has swept it last."""
    before: dict[str, dict[str, Any]] = run.plan.get("swept", {})
    sinks = before.keys() | run.counts.get("swept", {}).keys()
    return {sink: {**before.get(sink, {}), **swept_now(run, sink, tables)} for sink in sorted(sinks)}
