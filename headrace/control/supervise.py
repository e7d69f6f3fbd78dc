"""The engine's guardian: keeps the driver running, has sinks follow changed columns, stops when asked to."""

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

from headrace.control.follow import Follower

__all__ = ["main"]

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 20.0
_GRACE = 8.0


class _Stop(Exception):
    """Raised by SIGTERM."""


def _on_signal(signum: int, frame: FrameType | None) -> None:
    raise _Stop


def main(spec_path: str, context_path: str) -> int:
    """Guard one driver until SIGTERM; the pause between starts doubles while it keeps dying young."""
    signal.signal(signal.SIGTERM, _on_signal)
    signal.signal(signal.SIGINT, _on_signal)
    command = [sys.executable, "-m", "spark_jobs.main", str(Path(spec_path))]
    pause = _FIRST_PAUSE
    driver: subprocess.Popen[bytes] | None = None
    follower = Follower(Path(context_path), Path(spec_path))
    threading.Thread(target=follower.run, name="follower", daemon=True).start()
    try:
        while True:
            began = time.monotonic()
            # Its own process group: what a dead driver leaves behind (its JVM, its workers) goes too,
            # so that two drivers never write at once.
            driver = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
            driver.wait()
            _sweep(driver.pid)
            pause = _FIRST_PAUSE if time.monotonic() - began > 60 else min(pause * 2, _LONGEST_PAUSE)
            time.sleep(pause)
    except _Stop:
        follower.stop()
        if driver is not None:
            driver.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(_GRACE)
            _sweep(driver.pid)
    return 0


def _sweep(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
