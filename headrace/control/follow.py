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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["COLUMNS_SEEN", "Follower", "main", "wanted"]

_log = logging.getLogger("headrace")

_LOOK_EVERY_S = 1.0
_FIRST_PAUSE_S = 10.0
_LONGEST_PAUSE_S = 60.0
_LONGEST_REFUSED_S = 600.0
_REFUSED = 3
"""Exit code of a follower that a store or a table's key refuses, until a person does something."""
_BY_ITSELF = ("lenient", "evolve")
_PENDING = "follow-{source}.json"
COLUMNS_SEEN = "columns-{source}"
"""File that is there while the watcher sees columns that are not followed; no record tells of them yet."""


def wanted(pipelines: Path, progress: Path, run: Path) -> dict[str, list[str]]:
    """Return source → sinks that are to follow it now, judged by the files of the engine alone."""
    found: dict[str, list[str]] = {}
    for path in sorted(pipelines.glob("*.json")):
        spec, told = _read(path), _read(progress / path.name)
        if spec.get("paused") or spec.get("on_schema_change", "") not in _BY_ITSELF:
            continue
        drifts = [table.get("drift") or {} for table in told.get("tables", {}).values()]
        files = (_PENDING, COLUMNS_SEEN)
        pending = any((run / name.format(source=spec["source"])).exists() for name in files)
        if pending or any((drift.get("added") or drift.get("missing")) for drift in drifts):
            found.setdefault(spec["source"], []).append(spec["sink"])
    return found


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
    from headrace.config.pipeline import EngineSpec, SchemaPolicy, write_private
    from headrace.control.context import Context
    from headrace.control.refresh import refresh
    from headrace.control.registry import Registry
    from headrace.control.runs.start import in_words, start, wait
    from headrace.model.errors import HeadraceError, SinkError
    from headrace.model.schema import TableId

    signal.signal(signal.SIGTERM, _stop)
    begin_log(logging.INFO)
    context = Context.load(
        Path(context_file).read_text(encoding="utf-8"),
        lambda: EngineSpec.model_validate_json(Path(engine_file).read_bytes()),
    )
    registry = Registry(context.registry)
    pending = context.run / _PENDING.format(source=source)
    try:
        policies = {sink.name: sink.on_schema_change for sink in registry.sinks(source)}
        emptied = any(policies.get(name) == SchemaPolicy.EVOLVE.value for name in sinks)
        to_do = json.loads(pending.read_text()) if pending.exists() else {}
        to_do = to_do if isinstance(to_do, dict) else {"tables": to_do}  # of an older version
        changed = refresh(context, source, sinks=sinks, read_anew=False, say=_log.info)
        anew = [change.table for change in changed if change.grown or (change.dropped and emptied)]
        known = {tuple(table) for table in to_do.get("tables", ())}
        tables = sorted(known | {(table.schema, table.name) for table in anew})
        if tables:
            # A run that was begun before this change has read rows without it.
            run = to_do.get("run") if not anew else None
            write_private(pending, json.dumps({"tables": tables, "run": run}))
            if run is None:
                named = [TableId(*table) for table in tables]
                why = "columns have changed"
                run = start(context, source, tables=named, sinks=sinks, why=why, queue=True).id
                write_private(pending, json.dumps({"tables": tables, "run": run}))
            try:
                wait(context, run, patient=True, see=in_words(_log.info))
            except HeadraceError:
                # What is left to do stays noted, for a run of its own.
                write_private(pending, json.dumps({"tables": tables, "run": None}))
                raise
            pending.unlink(missing_ok=True)
    except HeadraceError as error:
        _log.error("%s does not follow %s: %s (%s)", ", ".join(sinks), source, error.message, error.code)
        registry.note(f"source {source}", "not followed", sinks=sinks, code=error.code, message=error.message)
        of_table = isinstance(error, SinkError) and error.table is not None
        return _REFUSED if of_table or error.code == "SOURCE_KEY_CHANGED" else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
