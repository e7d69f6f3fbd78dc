"""Somebody who writes all the while, beside what a test is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from tests.support.waiting import ended

__all__ = ["writing"]


@contextmanager
def writing(write: Callable[[int], object], every_s: float) -> Iterator[None]:
    """Have ``write`` called with 0, 1, 2 … again and again while the block runs.

    Raises:
        AssertionError: When it was never done, or one call failed.
    """
    over, done = Event(), list[int]()
    failed: list[Exception] = []

    def work() -> None:
        try:
            while not over.wait(every_s):
                write(len(done))
                done.append(len(done))
        except Exception as error:  # noqa: BLE001 - told in the end
            failed.append(error)

    thread = Thread(target=work, name="writing")
    thread.start()
    try:
        yield
    finally:
        over.set()
        ended(thread)
    assert done, "nobody has written"
    assert not failed, failed
