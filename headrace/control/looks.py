"""When somebody last looked at a source's catalogue, and how long that took.

A file tells it, by its time and its content: the registry is not written to at every look.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.control.context import Context

__all__ = ["BEAT", "LOOKS_EVERY_S", "Look", "beat", "last_look", "note_look"]

BEAT = "watcher.beat"
"""Name of the file that the watcher touches while it is at work."""

LOOKS_EVERY_S = 3.0
"""So long after a look the watcher begins the next one."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a source's catalogue.

    Args:
        at_ms: When it was over, Unix milliseconds.
        took_s: How long it took.
    """

    at_ms: int
    took_s: float


def note_look(context: Context, source: str, took_s: float) -> None:
    """Note that the catalogue of a source was seen now, and how long that took."""
    path = _path(context, source)
    beat(path)
    with path.open("r+b") as told:
        told.write(b"%015.3f" % took_s)  # always of one length: who reads meanwhile reads a whole number


def last_look(context: Context, source: str) -> Look | None:
    """Return the last look at the catalogue of a source; None when there never was one."""
    path = _path(context, source)
    try:
        at_ms, took = int(path.stat().st_mtime * 1000), path.read_bytes()
    except OSError:
        return None
    return Look(at_ms, float(took or 0))  # a file of an older version is empty


def beat(path: Path) -> None:
    """Set a file's time to now; make the file when there is none."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    now = time.time()
    os.utime(path, (now, now))


def _path(context: Context, source: str) -> Path:
    return context.run / f"looked-{source}"
