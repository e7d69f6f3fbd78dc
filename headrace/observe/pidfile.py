"""Pid files that cannot mistake a stranger for ours: they hold when the process was born, too.

The system hands a dead process's number to somebody else sooner or later. Whoever reads a pid file here
therefore compares the birth of the process that has the number now with the noted one, and never signals
another.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Mark", "alive", "birth", "read", "stop", "write"]

_LINUX = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class Mark:
    """One process, for ever: its number and its birth."""

    pid: int
    born: str


def birth(pid: int) -> str | None:
    """Return what tells this process from every other that had or will have its number; None if it is gone.

    A process that has ended but was not yet waited for by its parent counts as gone.
    """
    if _LINUX:
        # In clock ticks since boot: unlike a wall-clock time it does not move when the clock is set.
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return None
        state, *rest = fields.rpartition(")")[2].split()
        return None if state in "ZX" else f"{boot}:{rest[18]}"
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{process.create_time():.2f}"
    except psutil.Error:
        return None


def write(path: Path, pid: int | None = None) -> Mark:
    """Write a pid file for ``pid`` (default: this process), atomically.

    Raises:
        ProcessLookupError: There is no such process.
    """
    pid = os.getpid() if pid is None else pid
    born = birth(pid)
    if born is None:
        raise ProcessLookupError(f"no process {pid}")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"pid": pid, "born": born}, file)
    Path(name).chmod(0o644)
    Path(name).replace(path)
    return Mark(pid, born)


def read(path: Path) -> Mark | None:
    """Return what a pid file says, whether or not the process still lives; None without a readable one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Mark(int(content["pid"]), str(content["born"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def alive(path: Path) -> int | None:
    """Return the pid of the very process the file was written for if it still runs, else None."""
    mark = read(path)
    return mark.pid if mark is not None and birth(mark.pid) == mark.born else None


def _reap(pid: int) -> None:
    """Take the exit status of a child of ours, which would stay a zombie else."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _wait(mark: Mark, seconds: float) -> bool:
    """Wait until the process is gone; say whether it is."""
    deadline = time.monotonic() + seconds
    while birth(mark.pid) == mark.born:
        _reap(mark.pid)
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    _reap(mark.pid)
    return True


def _descendants(pid: int) -> list[Mark]:
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return [Mark(child.pid, born) for child in children if (born := birth(child.pid)) is not None]


def _signal(mark: Mark, number: signal.Signals) -> None:
    if birth(mark.pid) == mark.born:
        with contextlib.suppress(ProcessLookupError):
            os.kill(mark.pid, number)


def stop(path: Path, *, grace: float = 5.0, request: signal.Signals = signal.SIGTERM) -> bool:
    """Stop the process of a pid file and what it started, then remove the file.

    Args:
        path: The pid file.
        grace: Seconds the process has to end by itself before it is killed.
        request: The signal that asks it to end.

    Returns:
        True if it ended by itself, False if it had to be killed. True as well if it did not run.
    """
    mark = read(path)
    willing = True
    if mark is not None and birth(mark.pid) == mark.born:
        family = _descendants(mark.pid)
        _signal(mark, request)
        willing = _wait(mark, grace)
        if not willing:
            family += [child for child in _descendants(mark.pid) if child not in family]
            _signal(mark, signal.SIGKILL)
            _wait(mark, 2.0)
        for child in family:
            # Given a moment of their own: most notice that their parent has gone.
            if not _wait(child, 0.5):
                _signal(child, signal.SIGKILL)
                _wait(child, 1.0)
    path.unlink(missing_ok=True)
    return willing
