"""How much memory the whole takes, sampled: the stack's servers, the engine and this command."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

import psutil

from headrace.observe import pidfile

__all__ = ["MemoryWatch", "resident"]

_MIB = 1024 * 1024


def resident(pid: int) -> tuple[str, int] | None:
    """Return a process's command name and memory in bytes; None when it is gone or not ours to look at.

    Counted is the proportional set size where the system tells it (Linux): memory that processes
    share, such as Postgres' buffers, is then counted once in a sum; else the resident set size.
    """
    try:
        process = psutil.Process(pid)
        try:
            size = int(process.memory_full_info().pss)
        except (AttributeError, psutil.AccessDenied):
            size = int(process.memory_info().rss)
        return process.name(), size
    except psutil.Error:
        return None


class MemoryWatch:
    """Samples every few seconds until stopped and keeps the peaks.

    Args:
        run: Directory of the stack's pid files.
        every: Seconds between two samples.
    """

    def __init__(self, run: Path, *, every: float = 3.0) -> None:
        self._run = run
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)
        self._peak = 0
        self.peaks: dict[str, float] = {}

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> float:
        """Take a last sample and return the largest sum seen, in MiB."""
        if self._thread.ident is not None:
            self._stop.set()
            self._thread.join()
        self.sample()
        return round(self._peak / _MIB, 1)

    def sample(self) -> None:
        """Look once; per process of the stack the peak of it and its children is kept, in MiB."""
        total = 0
        for name, pids in self._processes():
            size = sum(found[1] for pid in pids if (found := resident(pid)) is not None)
            self.peaks[name] = max(self.peaks.get(name, 0.0), round(size / _MIB, 1))
            total += size
        self._peak = max(self._peak, total)

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            self.sample()

    def _processes(self) -> Iterable[tuple[str, list[int]]]:
        yield "demo", [os.getpid()]
        for path in sorted(self._run.glob("*.pid")):
            pid = pidfile.alive(path)
            if pid is not None:
                yield path.stem, [pid, *_children(pid)]


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []
