"""The process that carries a run out; whatever becomes of who asked for it, and of the servers meanwhile."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from headrace.config.logs import begin_log
from headrace.config.pipeline import EngineSpec
from headrace.control.capture import capture_of, source_of
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.control.runs import markers
from headrace.control.runs.final import FINAL
from headrace.control.runs.job import Aborted, Job
from headrace.control.runs.reading import note_read, note_told, read, stop_reading
from headrace.control.runs.repository import (
    ACTIVE,
    FORMER,
    OVER,
    SWEEP_LARGE,
    Phase,
    active,
    end,
    run_of,
)
from headrace.control.runs.shadowing import clear_away, discard_of_run, give_up
from headrace.control.runs.sweeping import leave_unswept, sweep
from headrace.control.sweeps import ROWS_BEHIND
from headrace.model.errors import HeadraceError, UsageError
from headrace.observe.failpoints import hit

__all__ = ["main", "work"]

_log = logging.getLogger("headrace")

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 15.0
_GONE = ("RESNAPSHOT_UNKNOWN", "SOURCE_UNKNOWN", FORMER)
"""Codes of errors that tell that the source was removed, and its runs with it, or was recovered."""


def work(job: Job) -> None:
    """Carry the run out until it is over, or a person has to decide."""
    pause = _FIRST_PAUSE_S
    while True:
        try:
            run = job.run
            if Phase(run.phase) not in ACTIVE:
                return
            if not run.plan.get("ends"):
                read(job)
            note_read(job)
            sweep(job)
            note_told(job)
            end(job.registry, job.name, Phase.COMPLETED)
            hit("run.ended", "")
            return
        except Aborted:
            _abort(job)
            return
        except HeadraceError as error:
            _log.error("run %s: %s (%s)", job.name, error.message, error.code)
            if error.code in _GONE:
                discard_of_run(job.context, job.name)
                return
            if error.code == OVER:
                return
            asks = error.code in (SWEEP_LARGE, ROWS_BEHIND)
            fails = error.code in FINAL or isinstance(error, UsageError)
            if (asks or fails) and job.run.wanted == "abort":  # who wants that was told that it ends
                _abort(job)
                return
            if asks:
                _rest(job, Phase.UNFINISHED, error)
                return
            if fails:
                leave_unswept(job, "has failed")
                give_up(job.context, job.run)  # it reads all of its tables anew if it goes on
                _rest(job, Phase.FAILED, error)
                return
            job.say(f"{error.message} ({error.code})")
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _rest(job: Job, phase: Phase, error: HeadraceError) -> None:
    """Leave the run to a person, unless somebody has just asked for its end."""
    if Phase(end(job.registry, job.name, phase, error).phase) in ACTIVE:
        _abort(job)


def _abort(job: Job) -> None:
    """End the run where it is."""
    with suppress(HeadraceError):
        stop_reading(job)
    leave_unswept(job, "was aborted")
    hit("run.unswept", "")
    end(job.registry, job.name, Phase.ABORTED)


def _tidy(job: Job) -> None:
    """Remove what runs that are over have left in stores and in the database, where we may."""
    with suppress(HeadraceError):
        source = job.registry.source(run_of(job.registry, job.name).source)
        clear_away(job.context, source.name)
        kept = [run.id for run in active(job.registry, source.name)]
        source_of(job.context, source).forget_orders(capture_of(job.context, source), kept)


def _stop(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_with(guardian: int) -> None:
    """End this process when its guardian is gone: the next one starts another for the run."""
    while os.getppid() == guardian:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGKILL)


def main(context_file: str, engine_file: str, name: str, guardian: str) -> int:
    """Carry out one run; return the exit code."""
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_with, args=(int(guardian),), daemon=True).start()
    begin_log(logging.INFO)
    context = Context.load(
        Path(context_file).read_text(encoding="utf-8"),
        lambda: EngineSpec.model_validate_json(Path(engine_file).read_bytes()),
    )
    job = Job(context, name, Registry(context.registry), Kafka(context.kafka_bootstrap))
    with markers.held(context, name) as mine:
        if mine:
            work(job)
            _tidy(job)
            hit("run.tidied", "")
    # Somebody may have had it go on just before the file was taken away.
    with suppress(UsageError):
        if mine and Phase(job.run.phase) in ACTIVE:
            markers.leave(context, name)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
