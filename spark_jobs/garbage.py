"""When Python looks for garbage: rarely, for a batch's rows are many, short-lived and free of cycles."""

from __future__ import annotations

import gc

__all__ = ["collect", "look_rarely"]

_NEW_OBJECTS = 200_000
"""Several thousand changes; at Python's own 700 a third of the time of a large batch went into looking."""


def look_rarely() -> None:
    """Tell this process, and those it forks, to look only after many new objects; idempotent.

    What exists by now is code and settings, and is never looked at again.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 50)


def collect() -> None:
    """Look now; to be called every few seconds where Python holds objects of the JVM.

    Such an object is in a cycle with its own methods, so nothing else lets go of it. Little as it is here, it
    holds a batch's plan there.
    """
    gc.collect()
