"""One file per run that a process has to work on: the guardian sees it, the process holds a lock on it.

The guardian needs no registry for that, and a process that dies leaves the file without the lock.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.control.context import Context

__all__ = ["Keeper", "held", "leave", "there"]

_LOOK_EVERY_S = 0.3
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_FOLDER = "runs"


def leave(context: Context, run: str) -> None:
    """Ask for a process that works on the run."""
    folder = context.run / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / run).touch(mode=0o600)


def there(context: Context, run: str) -> bool:
    """Return whether a process works on the run, or is asked for."""
    return (context.run / _FOLDER / run).exists()


@contextmanager
def held(context: Context, run: str) -> Iterator[bool]:
    """Yield whether this process is the one that works on the run; take the file away when it is done.

    Work that is broken off by an exception is not done: the file stays.
    """
    path = context.run / _FOLDER / run
    try:
        handle = path.open("r+")
    except FileNotFoundError:
        yield False
        return
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
        path.unlink(missing_ok=True)


@dataclass
class _Worker:
    process: subprocess.Popen[bytes] | None = None
    pause: float = _FIRST_PAUSE_S
    not_before: float = 0.0


@dataclass
class Keeper:
    """Starts a process for each run that is asked for; again, ever more slowly, where one dies.

    Args:
        context: File of the installation's context.
        engine: File of the engine's specification.
    """

    context: Path
    engine: Path
    _workers: dict[str, _Worker] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Look again and again, until :meth:`stop`."""
        folder = self.context.parent / _FOLDER
        while not self._over.wait(_LOOK_EVERY_S):
            names = {path.name for path in folder.glob("*")} if folder.is_dir() else set()
            for name in names:
                self._keep(name, self._workers.setdefault(name, _Worker()))
            for name in [n for n, w in self._workers.items() if n not in names and not _alive(w)]:
                del self._workers[name]

    def stop(self) -> None:
        """Start none any more, and end those at work; the next guardian takes their runs up."""
        self._over.set()
        for worker in self._workers.values():
            if worker.process is not None:
                worker.process.terminate()

    def _keep(self, name: str, worker: _Worker) -> None:
        if _alive(worker) or self._over.is_set():
            return
        if worker.process is not None:
            worker.process = None
            worker.not_before = time.monotonic() + worker.pause
            worker.pause = min(2 * worker.pause, _LONGEST_PAUSE_S)
        if time.monotonic() >= worker.not_before:
            command = [sys.executable, "-m", "headrace.control.runs.worker"]
            worker.process = subprocess.Popen(
                [*command, str(self.context), str(self.engine), name, str(os.getpid())],
                stdin=subprocess.DEVNULL,
            )


def _alive(worker: _Worker) -> bool:
    return worker.process is not None and worker.process.poll() is None
