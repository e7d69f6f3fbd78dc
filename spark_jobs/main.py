"""The engine: one driver that keeps a streaming query running for every pipeline file it finds."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession

from headrace.config.logs import begin_log
from headrace.config.pipeline import EngineSpec
from spark_jobs.beats import beating
from spark_jobs.garbage import collect, look_rarely
from spark_jobs.progress import replace_json
from spark_jobs.session import ended, start, warm_up
from spark_jobs.watch import Watch

__all__ = ["main"]

_log = logging.getLogger("headrace")

_TICK = 0.1
_LOOK_S = 1.0
_COLLECT_S = 5.0
_HANGS_S = 60.0
"""What takes longer for one sink hangs: the engine falls silent then, and is started anew."""


class _Stop(BaseException):
    """Raised in the main thread by SIGTERM and SIGINT."""


def _on_signal(signum: int, frame: FrameType | None) -> None:
    raise _Stop


def main(spec_path: str) -> int:
    """Run until told to stop or until the process that started it is gone; return the exit code."""
    signal.signal(signal.SIGTERM, _on_signal)
    signal.signal(signal.SIGINT, _on_signal)
    begin_log(logging.WARNING)
    parent = os.getppid()
    spec = EngineSpec.model_validate_json(Path(spec_path).read_bytes())

    def say(state: str) -> None:
        now = int(time.time() * 1000)
        replace_json(spec.progress / "engine.json", {"state": state, "pid": os.getpid(), "updated_ms": now})

    watch: Watch | None = None
    try:
        with beating(lambda: say("starting")):  # a machine that has other work may take minutes for it
            session = start(spec)
            watch = Watch(session, spec)
            watch.tick()
        look_rarely()
        # Beside the work: where much waits to be applied, this takes its turn, and the beats must go on.
        threading.Thread(target=warm_up, args=(session,), name="warm-up", daemon=True).start()
        _serve(session, watch, say, parent)
    except _Stop:
        pass
    finally:
        if watch is not None:
            watch.stop()
        say("stopped")
    # Spark's own shutdown waits for threads that no longer matter: everything durable is durable.
    os._exit(0)


def _serve(session: SparkSession, watch: Watch, say: Callable[[str], None], parent: int) -> None:
    """Look after the queries until the process that started this one, or Spark's context, is gone."""

    def alive() -> None:
        say("ready")
        watch.sign_of_life()

    looked = collected = 0.0
    # In a thread beside it: many seconds may pass until the first query is started, and slow is not dead.
    with beating(alive, most=_HANGS_S) as go_on:
        while os.getppid() == parent:
            go_on()
            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                if ended(session):
                    # Whoever started this process starts the next one, with a context of its own.
                    _log.error("Spark has ended its context: this driver ends, too")
                    return
            if time.monotonic() - collected > _COLLECT_S:
                collected = time.monotonic()
                collect()
            watch.tick(go_on)
            time.sleep(_TICK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
