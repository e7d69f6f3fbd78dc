"""No run of a source begins to read while a test does something, as if another one read meanwhile."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.control.context import Context

__all__ = ["turn_kept"]


@contextmanager
def turn_kept(context: Context, source: str) -> Iterator[None]:
    """Keep the turn to read: runs that begin wait for it, and can be paused and aborted meanwhile."""
    with (context.run / f"reading-{source}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
