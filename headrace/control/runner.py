"""Starts and stops the engine as a guarded process of its own; it outlives the command that started it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from headrace.config.pipeline import EngineSpec, write_private
from headrace.control.context import Context
from headrace.observe import pidfile

__all__ = ["at_rest", "engine_state", "ensure_engine", "runs_now", "stop_engine"]

_PIDFILE = "engine.pid"
_SPEC = "engine.json"
_CONTEXT = "context.json"
_BOOT = 90.0
_LOG_LIMIT = 20 * 1024 * 1024


def ensure_engine(context: Context) -> bool:
    """Start the engine unless it runs; return whether it was started. Returns before it is ready.

    Whoever calls at the same time, in this process or another, waits: two engines would be two writers.
    """
    spec = context.engine()
    for folder in (spec.run, spec.logs, spec.work, spec.pipelines, spec.progress):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (spec.run / "engine.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_private(spec.run / _CONTEXT, context.dump())
        path = spec.run / _PIDFILE
        if pidfile.alive(path):
            if _same(spec.run / _SPEC, spec):
                return False
            stop_engine(spec.run)
        _start(spec)
    return True


def _start(spec: EngineSpec) -> None:
    spec_file = spec.run / _SPEC
    write_private(spec_file, spec.model_dump_json())
    starting = {"state": "starting", "pid": os.getpid(), "updated_ms": int(time.time() * 1000)}
    write_private(spec.progress / "engine.json", json.dumps(starting))
    log = spec.logs / "engine.log"
    if log.exists() and log.stat().st_size > _LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    log.touch(mode=0o600)
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.control.supervise", str(spec_file), str(spec.run / _CONTEXT)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            umask=0o077,
            # Each query has threads of its own. With an arena for each, what one batch has freed is of no use
            # to the next: the driver grows with every query, and page after page is fetched anew.
            env={"MALLOC_ARENA_MAX": "2", **os.environ},
        )
    pidfile.write(spec.run / _PIDFILE, process.pid)
    # It outlives us; this object would only warn at its collection.
    process.returncode = 0


def _same(path: Path, spec: EngineSpec) -> bool:
    """Return whether the engine runs as ``spec`` says, but for what only changes how fast it starts."""
    try:
        known = EngineSpec.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return False
    return known.model_copy(update={"java_options": spec.java_options}) == spec


def runs_now(context: Context) -> bool:
    """Return whether the engine's guardian runs, which starts all others."""
    return pidfile.alive(context.run / _PIDFILE) is not None


def stop_engine(run: Path, *, grace: float = 20.0) -> bool:
    """Stop the engine and its driver; what is settled stays settled.

    Args:
        run: The directory of pid files.
        grace: Seconds the engine has to end by itself before it is killed.

    Returns:
        False if it had to be killed.
    """
    return pidfile.stop(run / _PIDFILE, grace=grace)


def engine_state(progress: Path, *, fresh_within: float = 10.0) -> dict[str, Any]:
    """Return the engine's last word: ``state`` is ``absent`` without one, ``silent`` when it is old."""
    try:
        value: dict[str, Any] = json.loads((progress / "engine.json").read_text())
    except (OSError, ValueError):
        return {"state": "absent"}
    # A driver that boots is silent until its session is there.
    patience = max(fresh_within, _BOOT) if value["state"] == "starting" else fresh_within
    if value["state"] != "stopped" and time.time() - value["updated_ms"] / 1000 > patience:
        value["state"] = "silent"
    return value


def at_rest(progress: Path) -> bool:
    """Return whether no driver writes: there is none, it has stopped, or it has died.

    One that is silent may only be slow, and what it has begun it will end.
    """
    told = engine_state(progress)
    if told["state"] == "silent":
        return pidfile.birth(told["pid"]) is None
    return told["state"] in ("absent", "stopped")
