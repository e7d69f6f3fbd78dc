"""Signs of life while something is begun that takes its time and says nothing itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["MOST_S", "beating"]

MOST_S = 600.0
"""What has not begun by then hangs: no more signs are given, and whoever looks for them ends it."""

_EVERY_S = 1.0


@contextmanager
def beating(say: Callable[[], None], *, every: float = _EVERY_S, most: float = MOST_S) -> Iterator[None]:
    """Call ``say`` at once, and again and again until the block ends; for ``most`` seconds at most."""
    over, until = threading.Event(), time.monotonic() + most

    def beat() -> None:
        while not over.wait(every) and time.monotonic() < until:
            say()

    say()
    thread = threading.Thread(target=beat, name="starting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
