"""Runs that followers begin, and a turn to read that is kept from them while a test does something."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.control.context import Context
from headrace.control.registry import Registry, ResnapshotEntry
from headrace.control.runs.repository import all_of
from tests.support.mirror import Mirror

__all__ = ["begun", "turn_kept"]


def begun(mirror: Mirror) -> list[ResnapshotEntry]:
    """Return the runs that followers have begun, the newest first."""
    runs = all_of(Registry(mirror.context.registry), mirror.name)
    return [run for run in runs if run.why == "columns have changed"]


@contextmanager
def turn_kept(context: Context, source: str) -> Iterator[None]:
    """Keep the turn to read: runs that begin wait for it, and can be paused and aborted meanwhile."""
    with (context.run / f"reading-{source}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
