"""Named points where a test may make the process die, hang, sleep or fail; off unless asked for.

``HEADRACE_FAILPOINTS="apply.after_write=kill@3,settle.before=sleep:2"``: the point, what happens
there, and at which visit of the process (default the first). ``HEADRACE_FAILPOINTS_LOG`` names a
file to which each point fired is appended, so that a suite can prove that all were.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from headrace.model.errors import HeadraceError

__all__ = ["POINTS", "hit"]

POINTS = (
    "batch.planned",
    "apply.before_write",
    "apply.after_write",
    "settle.before_dead_letters",
    "settle.after_dead_letters",
    "settle.after_progress",
)

_visits: dict[str, int] = {}


def _armed() -> dict[str, tuple[str, int]]:
    armed = {}
    for item in filter(None, os.environ.get("HEADRACE_FAILPOINTS", "").split(",")):
        name, _, what = item.partition("=")
        action, _, nth = what.partition("@")
        armed[name.strip()] = (action, int(nth or 1))
    return armed


_ARMED = _armed()


def hit(name: str) -> None:
    """Visit the point ``name``; do there what the environment asks for, once."""
    if not _ARMED or name not in _ARMED:
        return
    action, nth = _ARMED[name]
    _visits[name] = _visits.get(name, 0) + 1
    if _visits[name] != nth:
        return
    if log := os.environ.get("HEADRACE_FAILPOINTS_LOG"):
        with Path(log).open("a", encoding="utf-8") as stream:
            stream.write(f"{name}={action}\n")
    kind, _, argument = action.partition(":")
    match kind:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sleep":
            time.sleep(float(argument or 1))
        case "hang":
            signal.pause()
        case "raise":
            raise HeadraceError(f"Failpoint {name}.", code="FAILPOINT")
        case _:
            raise ValueError(f"failpoint {name}: unknown action {action!r}")
