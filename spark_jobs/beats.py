"""Signs of life of something that takes its time now and then and says nothing itself meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["MOST_S", "beating"]

MOST_S = 600.0
"""What has not gone on by then hangs: no more signs are given, and whoever looks for them ends it."""

_EVERY_S = 1.0


@contextmanager
def beating(
    say: Callable[[], None], *, every: float = _EVERY_S, most: float = MOST_S
) -> Iterator[Callable[[], None]]:
    """Call ``say`` at once, and again and again until the block ends.

    Args:
        say: Called in a thread of its own, except for the first time.
        every: Seconds from one call to the next.
        most: So many seconds at most, counted anew whenever what the block is given is called.
    """
    over, until = threading.Event(), time.monotonic() + most

    def go_on() -> None:
        nonlocal until
        until = time.monotonic() + most

    def beat() -> None:
        while not over.wait(every):
            if time.monotonic() < until:
                with suppress(OSError):  # nothing can be written: nothing is heard
                    say()

    say()
    thread = threading.Thread(target=beat, name="beats", daemon=True)
    try:
        thread.start()
        yield go_on
    finally:
        over.set()
        if thread.ident is not None:  # a signal may come before it is started
            thread.join()
