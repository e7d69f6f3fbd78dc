"""When somebody last looked at a source's catalogue.

A file's time tells it: the registry is not written to at every look.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from headrace.control.context import Context

__all__ = ["BEAT", "beat", "last_look_ms", "note_look"]

BEAT = "watcher.beat"
"""Name of the file that the watcher touches while it is at work."""


def note_look(context: Context, source: str) -> None:
    """Note that the catalogue of a source was seen now."""
    beat(_path(context, source))


def last_look_ms(context: Context, source: str) -> int | None:
    """Return when the catalogue of a source was last seen, Unix milliseconds; None when it never was."""
    try:
        return int(_path(context, source).stat().st_mtime * 1000)
    except OSError:
        return None


def beat(path: Path) -> None:
    """Set a file's time to now; make the file when there is none."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    now = time.time()
    os.utime(path, (now, now))


def _path(context: Context, source: str) -> Path:
    return context.run / f"looked-{source}"
