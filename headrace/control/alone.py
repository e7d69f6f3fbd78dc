"""One command at a time works on what a source captures; who waits for another is told for whom."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from headrace.control.context import Context

__all__ = ["alone", "somebody_works"]

_MOMENT_S = 1.0
"""So long a command waits for another without a word."""
_POLL_S = 0.1


@contextmanager
def alone(context: Context, source: str, doing: str, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until nobody else works on what the source captures, and keep others away.

    Args:
        context: The installation.
        source: The source. Commands for others go on meanwhile.
        doing: What others are told who wait.
        say: Told for whom this one waits, when it is for longer than a moment.
    """
    with _lock_of(context, source) as lock:
        _wait(lock, source, say)
        lock.truncate(0)
        lock.write(f"{doing} (process {os.getpid()})")
        lock.flush()
        yield


def somebody_works(context: Context, source: str) -> bool:
    """Return whether a command works on what the source captures."""
    with _lock_of(context, source) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _lock_of(context: Context, source: str) -> IO[str]:
    context.run.mkdir(parents=True, exist_ok=True)
    return (context.run / f"refresh-{source}.lock").open("a+")


def _wait(lock: IO[str], source: str, say: Callable[[str], None]) -> None:
    began, told = time.monotonic(), ""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            who = lock.read()
            if who != told and time.monotonic() - began > _MOMENT_S:
                say(f"{source}: waiting for {who}")
                told = who
            time.sleep(_POLL_S)
        else:
            return
