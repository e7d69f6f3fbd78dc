"""Named points where a test may make the process die, hang, sleep or fail; off unless asked for.

``HEADRACE_FAILPOINTS="apply.after_write=kill@3,settle.after_progress/delta=later:0.02"``: the point, at
which kind of sink if only at one, what happens there, and at which visit of the process (default the
first). ``later`` kills after some seconds, while the process goes on. ``HEADRACE_FAILPOINTS_LOG`` names a
file to which each point fired is appended, so that a suite can prove that all were.

``HEADRACE_FAILPOINTS="@/tmp/points"`` has each process that starts look into that file for the same words.
What has fired is taken out of it: the next process gets past that point, and nothing has to be started anew.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from headrace.model.errors import HeadraceError

__all__ = ["POINTS", "POINTS_OF", "POINTS_OF_FOLLOWER", "POINTS_OF_RUN", "POINTS_OF_SWITCH", "hit"]

POINTS = (
    "batch.planned",
    "batch.decoded",
    "apply.before_write",
    "apply.after_write",
    "settle.before_dead_letters",
    "settle.after_dead_letters",
    "settle.after_progress",
)

POINTS_OF = {"delta": ("delta.before_commit", "delta.after_commit")}
"""Further points that only one kind of sink passes."""

POINTS_OF_SWITCH = ("switch.before", "switch.page", "switch.after", "switch.settled")
"""Points that a shadow passes on its way into the place of the serving target."""

POINTS_OF_FOLLOWER = ("follow.registered",)
"""Points that whoever has sinks follow columns passes."""

POINTS_OF_RUN = (
    "run.noted",
    "run.requested",
    "run.asked",
    "run.read",
    "run.ends",
    "run.unasked",
    "run.begun_shadow",
    "desk.left",
    "desk.answered",
    "run.withheld",
    "run.withdrawn",
    "run.moved",
    "run.rewritten",
    "run.swept",
    "run.healed",
    "run.counted",
    "run.remembered",
    "run.refused",
    "run.unswept",
    "run.ended",
    "run.tidied",
)
"""Points that a run passes; those that tell at which kind of sink, at each of its sinks."""

_KNOWN = frozenset(POINTS).union(*POINTS_OF.values(), POINTS_OF_SWITCH, POINTS_OF_FOLLOWER, POINTS_OF_RUN)

_visits: dict[str, int] = {}


def _file() -> Path | None:
    said = os.environ.get("HEADRACE_FAILPOINTS", "")
    return Path(said[1:]) if said.startswith("@") else None


def _items() -> list[str]:
    path = _file()
    if path is None:
        return [*filter(None, os.environ.get("HEADRACE_FAILPOINTS", "").split(","))]
    return [*filter(None, path.read_text(encoding="utf-8").split(","))] if path.exists() else []


def _armed() -> dict[str, tuple[str, int]]:
    armed = {}
    for item in _items():
        name, _, what = item.partition("=")
        action, _, nth = what.partition("@")
        if name.strip().partition("/")[0] not in _KNOWN:
            raise ValueError(f"there is no failpoint {name!r}")
        armed[name.strip()] = (action, int(nth or 1))
    return armed


_ARMED = _armed()


def hit(name: str, where: str) -> None:
    """Visit the point ``name`` on behalf of a kind of sink; do there what the environment asks for, once."""
    if not _ARMED:
        return
    name = name if name in _ARMED else f"{name}/{where}"
    if name not in _ARMED:
        return
    action, nth = _ARMED[name]
    _visits[name] = _visits.get(name, 0) + 1
    if _visits[name] != nth:
        return
    if (path := _file()) is not None:
        left = [item for item in _items() if item.partition("=")[0].strip() != name]
        path.write_text(",".join(left), encoding="utf-8")
    if log := os.environ.get("HEADRACE_FAILPOINTS_LOG"):
        with Path(log).open("a", encoding="utf-8") as stream:
            stream.write(f"{name}={action}\n")
    kind, _, argument = action.partition(":")
    match kind:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "later":
            kill = threading.Timer(float(argument), os.kill, (os.getpid(), signal.SIGKILL))
            kill.daemon = True
            kill.start()
        case "sleep":
            time.sleep(float(argument or 1))
        case "hang":
            signal.pause()
        case "raise":
            raise HeadraceError(f"Failpoint {name}.", code="FAILPOINT")
        case _:
            raise ValueError(f"failpoint {name}: unknown action {action!r}")
