"""What each process of a stack spent while something was measured."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import psutil

from headrace.observe import pidfile

__all__ = ["Meter"]

_EVERY_S = 0.25
_MIB = 1 << 20
_CONTROL = "headrace.control."

Spent = dict[str, float]


class Meter:
    """Counts, while it is entered, processor seconds and the peak of resident memory per process.

    A server counts with its children; the engine as what it consists of: its guardian, the watcher, the
    driver's Python, the driver's JVM and the Python workers. ``bench``, which asks and waits, is listed, too.

    Args:
        run: Directory of the stack's pid files.
        others: Name → pid of processes beside the stack; each counts with its children.

    Attributes:
        seconds: Process → processor seconds.
        peak_mib: Process → largest sum of resident memory.
    """

    def __init__(self, run: Path, others: Mapping[str, int] | None = None) -> None:
        self._run = run
        self._others = dict(others or {})
        self._stop = threading.Event()
        self.seconds: Spent = {}
        self.peak_mib: Spent = {}

    def __enter__(self) -> Meter:
        self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)
        self._before = self._processor()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        for name, seconds in self._processor().items():
            self.seconds[name] = round(seconds - self._before.get(name, 0.0), 3)

    def per_million(self, changes: int) -> Spent:
        """Return processor seconds per million changes, of processes that did something."""
        told = {name: round(seconds * 1e6 / changes, 2) for name, seconds in self.seconds.items()}
        return {name: seconds for name, seconds in told.items() if seconds > 0}

    def _watch(self) -> None:
        while not self._stop.is_set():
            now: Spent = {}
            for name, process in self._processes():
                try:
                    now[name] = now.get(name, 0.0) + process.memory_info().rss / _MIB
                except psutil.Error:
                    continue
            for name, size in now.items():
                self.peak_mib[name] = round(max(self.peak_mib.get(name, 0.0), size), 1)
            self._stop.wait(_EVERY_S)

    def _processor(self) -> Spent:
        total: Spent = {}
        for name, process in self._processes():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            # Those of children that have ended and were waited for; those that live are counted themselves.
            ended = times.children_user + times.children_system
            total[name] = total.get(name, 0.0) + times.user + times.system + ended
        return total

    def _processes(self) -> Iterator[tuple[str, psutil.Process]]:
        yield "bench", psutil.Process(os.getpid())
        for name, pid in self._others.items():
            yield from ((name, process) for process in _family(pid))
        for path in sorted(self._run.glob("*.pid")):
            found = pidfile.alive(path)
            if found is None:
                continue
            if path.stem == "engine":
                yield from _engine(found)
            else:
                yield from ((path.stem, process) for process in _family(found))


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _engine(pid: int) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the engine's processes: guardian → watcher and such; driver → its JVM → Python workers."""
    try:
        guardian = psutil.Process(pid)
        yield "engine guardian", guardian
        for driver in guardian.children():
            module = next((word for word in driver.cmdline() if word.startswith(_CONTROL)), "")
            if module:
                yield module.removeprefix(_CONTROL), driver
                continue
            yield "driver Python", driver
            for jvm in driver.children():
                yield "driver JVM", jvm
                yield from (("Python workers", worker) for worker in jvm.children(recursive=True))
    except psutil.Error:
        return
