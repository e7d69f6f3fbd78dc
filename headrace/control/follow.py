"""Sinks follow their tables' columns by themselves: seen by the guardian, done by a process of its own.

What has to be read anew is noted before anything else, so that a follower that dies is followed up.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.control.context import Context
    from headrace.control.debts import Debt, Debts
    from headrace.control.registry import Registry

__all__ = ["BY_ITSELF", "PENDING", "Follower", "main", "note_unfollowed", "wanted"]

_log = logging.getLogger("headrace")

_LOOK_EVERY_S = 1.0
_FIRST_PAUSE_S = 10.0
_LONGEST_PAUSE_S = 60.0
_LONGEST_REFUSED_S = 600.0
_REFUSED = 3
"""Exit code of a follower that a store or a table's key refuses, until a person does something."""
_WAITS = ("SINK_AT_REST", "RESNAPSHOT_PAUSED")
"""Codes of a run that a person has to let go on."""
BY_ITSELF = ("lenient", "evolve")
PENDING = "follow-{source}.json"
"""File that is there while tables are to be read anew, see :mod:`headrace.control.debts`."""
_COLUMNS_SEEN = "columns-{source}"
"""File with the sinks that do not follow columns which the watcher sees; no record tells of them yet."""


def note_unfollowed(run: Path, source: str, sinks: Collection[str]) -> None:
    """Note which sinks of a source have columns to follow, for whoever starts followers."""
    from headrace.config.pipeline import write_private

    path = run / _COLUMNS_SEEN.format(source=source)
    if not sinks:
        path.unlink(missing_ok=True)
    elif _lines(path) != set(sinks):
        write_private(path, "\n".join(sorted(sinks)))


def wanted(pipelines: Path, progress: Path, run: Path) -> dict[str, list[str]]:
    """Return source → sinks that are to follow it now, judged by the files of the engine alone."""
    found: dict[str, list[str]] = {}
    for path in sorted(pipelines.glob("*.json")):
        spec, told = _read(path), _read(progress / path.name)
        if spec.get("paused") or spec.get("on_schema_change", "") not in BY_ITSELF:
            continue
        drifts = [table.get("drift") or {} for table in told.get("tables", {}).values()]
        pending = (run / PENDING.format(source=spec["source"])).exists()
        seen = spec["sink"] in _lines(run / _COLUMNS_SEEN.format(source=spec["source"]))
        if pending or seen or any(map(_is_followed, drifts)):
            found.setdefault(spec["source"], []).append(spec["sink"])
    return found


def _is_followed(drift: Mapping[str, Any]) -> bool:
    """Return whether a drift is one of columns; a table of another key is followed by nobody."""
    return bool(drift.get("added") or drift.get("missing")) and not drift.get("key")


def _lines(path: Path) -> set[str]:
    try:
        return set(path.read_text(encoding="utf-8").split("\n"))
    except OSError:
        return set()


def _read(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value


@dataclass
class _Try:
    process: subprocess.Popen[bytes] | None = None
    pause: float = _FIRST_PAUSE_S
    not_before: float = 0.0


@dataclass
class Follower:
    """Starts followers for as long as the engine runs; slower and slower where one fails.

    What ends by itself, such as a server that is away or a busy sink, is waited for a minute at most.

    Args:
        context: File of the installation's context.
        engine: File of the engine's specification.
    """

    context: Path
    engine: Path
    _tries: dict[str, _Try] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Look again and again, until :meth:`stop`."""
        spec = _read(self.engine)
        places = [Path(spec[name]) for name in ("pipelines", "progress", "run")]
        while not self._over.wait(_LOOK_EVERY_S):
            self._tick(wanted(*places))

    def stop(self) -> None:
        """Start none any more, and tell those at work to put back what they have begun."""
        self._over.set()
        for one in self._tries.values():
            if one.process is not None:
                one.process.terminate()

    def _tick(self, found: Mapping[str, list[str]]) -> None:
        for source, one in self._tries.items():
            if one.process is not None and (code := one.process.poll()) is not None:
                one.process = None
                one.not_before = time.monotonic() + (one.pause if code else _FIRST_PAUSE_S)
                longest = _LONGEST_REFUSED_S if code == _REFUSED else _LONGEST_PAUSE_S
                one.pause = min(2 * one.pause, longest) if code else _FIRST_PAUSE_S
                if code:
                    _log.error("following the columns of %s failed", source)
        for source, sinks in found.items():
            one = self._tries.setdefault(source, _Try())
            if one.process is None and time.monotonic() >= one.not_before and not self._over.is_set():
                files = [str(self.context), str(self.engine)]
                command = [sys.executable, "-m", "headrace.control.follow", *files, source, *sinks]
                one.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)


def _stop(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(context_file: str, engine_file: str, source: str, sinks: list[str]) -> int:
    """Have ``sinks`` follow the tables of ``source``; return the exit code."""
    # Imported here: the guardian only looks, and stays small.
    from headrace.config.logs import begin_log
    from headrace.config.pipeline import EngineSpec
    from headrace.control.context import Context
    from headrace.control.debts import Debts
    from headrace.control.refresh import follow
    from headrace.control.registry import Registry
    from headrace.model.errors import HeadraceError

    signal.signal(signal.SIGTERM, _stop)
    begin_log(logging.INFO)
    context = Context.load(
        Path(context_file).read_text(encoding="utf-8"),
        lambda: EngineSpec.model_validate_json(Path(engine_file).read_bytes()),
    )
    registry = Registry(context.registry)
    debts = Debts(context, registry, source)
    try:
        done = follow(context, source, sinks=sinks, again=False, owe=debts.owe, say=_log.info)
        refusals = [(sink, error) for (sink, _), error in done.refused.items()]
        for sink, error in (*refusals, *done.away.items()):
            told = {"sinks": [sink], "code": error.code, "message": error.message}
            registry.note(f"source {source}", "not followed", **told)
        ready = [sink for sink in sinks if sink not in done.away]
        code = _read_anew(context, registry, debts, source, ready, patient=not done.away)
        return code or (_REFUSED if done.changed.standing or done.changed.keys else 0)
    except HeadraceError as error:
        _log.error("%s does not follow %s: %s (%s)", ", ".join(sinks), source, error.message, error.code)
        registry.note(f"source {source}", "not followed", sinks=sinks, code=error.code, message=error.message)
        return 1


def _read_anew(
    context: Context, registry: Registry, debts: Debts, source: str, sinks: Sequence[str], *, patient: bool
) -> int:
    """Have runs read what is owed, and wait for them; return the exit code.

    While some sinks are still to follow nobody waits: they are tried again. Nor for a run that waits for a
    person, as one that is paused or has a sink at rest: columns that change meanwhile are followed, too.
    """
    from headrace.control.runs.repository import Phase
    from headrace.control.runs.start import start, wait
    from headrace.control.runs.words import in_words
    from headrace.model.errors import HeadraceError

    runs: dict[str, None] = {}
    together: dict[object, list[Debt]] = {}
    for debt, run in debts.settle():
        if run is not None and run.phase != Phase.FAILED.value:
            runs[run.id] = None
        elif debt.sink in sinks:
            together.setdefault(debt.table if run is not None else None, []).append(debt)
    for group in together.values():
        tables = sorted({debt.table for debt in group}, key=str)
        named = sorted({debt.sink for debt in group})
        why = "columns have changed"
        begun = start(context, source, tables=tables, sinks=named, why=why, queue=True, spare=True)
        runs[begun.id] = None
    for run_id in runs if patient else ():
        try:
            wait(context, run_id, see=in_words(_log.info))
        except HeadraceError as error:
            if error.code in _WAITS:
                _log.info("run %s is left to go on by itself: %s", run_id, error.message)
                return 1
            _log.error("%s was not read anew: %s (%s)", source, error.message, error.code)
            registry.note(f"source {source}", "not read anew", code=error.code, message=error.message)
    return 0 if patient and not debts.settle() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
