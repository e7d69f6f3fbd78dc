"""The guardian: keeps driver, watcher and runs at work, has sinks follow columns, stops when asked to."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from headrace.config.pipeline import EngineSpec
from headrace.control.follow import Follower
from headrace.control.looks import BEAT
from headrace.control.runner import engine_state
from headrace.control.runs.markers import Keeper

__all__ = ["main"]

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 20.0
_GRACE = 8.0
_LOOK_S = 5.0
_SILENT_S = 90.0
"""A driver that hangs helps nobody. What it has not settled runs again in the next one."""


class _Stop(Exception):
    """Raised by SIGTERM."""


def _on_signal(signum: int, frame: FrameType | None) -> None:
    raise _Stop


def main(spec_path: str, context_path: str) -> int:
    """Guard one driver until SIGTERM; the pause between starts doubles while it keeps dying young."""
    signal.signal(signal.SIGTERM, _on_signal)
    signal.signal(signal.SIGINT, _on_signal)
    command = [sys.executable, "-m", "spark_jobs.main", str(Path(spec_path))]
    spec = EngineSpec.model_validate_json(Path(spec_path).read_bytes())
    pause = _FIRST_PAUSE
    driver: subprocess.Popen[bytes] | None = None
    follower = Follower(Path(context_path), Path(spec_path))
    threading.Thread(target=follower.run, name="follower", daemon=True).start()
    keeper = Keeper(Path(context_path), Path(spec_path))
    threading.Thread(target=keeper.run, name="runs", daemon=True).start()
    command_of_watcher = [sys.executable, "-m", "headrace.control.watcher", context_path, spec_path]
    watcher = _Kept(command_of_watcher, Path(context_path).with_name(BEAT))
    threading.Thread(target=watcher.run, name="watcher", daemon=True).start()
    try:
        while True:
            began = time.monotonic()
            # Its own process group: what a dead driver leaves behind (its JVM, its workers) goes too,
            # so that two drivers never write at once.
            driver = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
            _wait(driver, spec.progress)
            _sweep(driver.pid)
            pause = _FIRST_PAUSE if time.monotonic() - began > 60 else min(pause * 2, _LONGEST_PAUSE)
            time.sleep(pause)
    except _Stop:
        if driver is not None:
            driver.terminate()
        follower.stop()
        keeper.stop()
        watcher.stop()
        if driver is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(_GRACE)
            _sweep(driver.pid)
    return 0


def _wait(driver: subprocess.Popen[bytes], progress: Path) -> None:
    """Return when the driver has ended; kill one that was at work and has said nothing for too long."""
    looks = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(_LOOK_S)
            return
        said = engine_state(progress, fresh_within=_SILENT_S)
        # Two looks, for a machine that wakes up or sets its clock has an old word for a moment.
        looks = looks + 1 if said["state"] == "silent" and said["pid"] == driver.pid else 0
        if looks > 1:
            print(f"driver {driver.pid} has said nothing for {_SILENT_S:.0f} s: killed", file=sys.stderr)
            _sweep(driver.pid)


class _Kept:
    """A process that is started again whenever it ends or falls silent, until :meth:`stop`.

    Args:
        command: What to run.
        beat: A file that it touches while it is at work.
    """

    def __init__(self, command: list[str], beat: Path) -> None:
        self._command = command
        self._beat = beat
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    def run(self) -> None:
        """Keep it running."""
        pause = _FIRST_PAUSE
        while not self._over.is_set():
            began = time.monotonic()
            with self._starting:
                if self._over.is_set():
                    return
                self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
            self._wait(self._process, began)
            pause = _FIRST_PAUSE if time.monotonic() - began > 60 else min(pause * 2, _LONGEST_PAUSE)
            self._over.wait(pause)

    def _wait(self, process: subprocess.Popen[bytes], began: float) -> None:
        """Return when the process has ended; kill one that has said nothing for too long."""
        looks = 0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
                return
            silent = self._silence() > _SILENT_S and time.monotonic() - began > _SILENT_S
            looks = looks + 1 if silent else 0
            if looks > 1:
                print(
                    f"process {process.pid} has said nothing for {_SILENT_S:.0f} s: killed", file=sys.stderr
                )
                process.kill()

    def _silence(self) -> float:
        try:
            return time.time() - self._beat.stat().st_mtime
        except OSError:
            return float("inf")

    def stop(self) -> None:
        """End it."""
        self._over.set()
        with self._starting:
            if self._process is not None:
                self._process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE / 2)
                self._process.kill()


def _sweep(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
