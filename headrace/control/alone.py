"""One command at a time works on what a source captures, or on a sink; who waits is told for whom."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from headrace.control.context import Context

__all__ = ["Say", "alone", "is_held", "only_one", "somebody_works", "take", "worked_on"]

Say = Callable[[str], None]

_MOMENT_S = 1.0
"""So long a command waits for another without a word."""
_POLL_S = 0.1


@contextmanager
def alone(context: Context, source: str, doing: str, say: Say) -> Iterator[None]:
    """Wait until nobody else works on what the source captures, and keep others away.

    Args:
        context: The installation.
        source: The source. Commands for others go on meanwhile.
        doing: What others are told who wait.
        say: Told for whom this one waits, when it is for longer than a moment.
    """
    with _lock_of(context, source) as lock:
        take(lock, source, doing, say)
        yield


@contextmanager
def alone_if_nobody_works(context: Context, source: str, doing: str) -> Iterator[bool]:
    """Yield whether nobody else works on what the source captures; then others are kept away."""
    with _lock_of(context, source) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        _sign(lock, doing)
        yield True


@contextmanager
def only_one(context: Context, kind: str, name: str, doing: str, say: Say) -> Iterator[None]:
    """Wait until no other command adds or removes what has this name, and keep others away.

    Args:
        context: The installation.
        kind: ``source`` or ``sink``.
        name: Its name, a valid one.
        doing: What others are told who wait.
        say: Told for whom this one waits, when it is for longer than a moment.
    """
    with _lock_on(context, kind, name) as lock:
        take(lock, name, doing, say)
        yield


def is_held(context: Context, kind: str, name: str) -> bool:
    """Return whether a command adds or removes what has this name."""
    with _lock_on(context, kind, name) as lock:
        return _is_taken(lock)


def worked_on(context: Context) -> set[str]:
    """Return what commands add or remove now, each name after ``source`` or ``sink``."""
    found = set()
    for path in context.run.glob("name-*.lock"):
        with path.open("a+") as lock:
            if _is_taken(lock):
                found.add(path.stem.removeprefix("name-").replace("-", " ", 1))
    return found


def somebody_works(context: Context, source: str) -> bool:
    """Return whether a command works on what the source captures."""
    with _lock_of(context, source) as lock:
        return _is_taken(lock)


def _is_taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _lock_on(context: Context, kind: str, name: str) -> IO[str]:
    context.run.mkdir(parents=True, exist_ok=True)
    return (context.run / f"name-{kind}-{name}.lock").open("a+")


def _lock_of(context: Context, source: str) -> IO[str]:
    context.run.mkdir(parents=True, exist_ok=True)
    return (context.run / f"refresh-{source}.lock").open("a+")


def take(lock: IO[str], what: str, doing: str, say: Say) -> None:
    """Wait until nobody else has the lock, and have it until it is closed.

    Args:
        lock: Open to be appended to and read.
        what: That which is worked on, such as a source.
        doing: What others are told who wait.
        say: Told for whom this one waits, when it is for longer than a moment.
    """
    began, told = time.monotonic(), ""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            who = lock.read()
            if who != told and time.monotonic() - began > _MOMENT_S:
                say(f"{what}: waiting for {who or 'another command'}")
                told = who
            time.sleep(_POLL_S)
        else:
            break
    _sign(lock, doing)


def _sign(lock: IO[str], doing: str) -> None:
    lock.truncate(0)
    lock.write(f"{doing} (process {os.getpid()})")
    lock.flush()
