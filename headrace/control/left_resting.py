"""Queries that a command had rest, and that died before it could let them go on."""

from __future__ import annotations

from contextlib import suppress

from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry
from headrace.control.pipelines import is_withheld, rewrite, worked_on
from headrace.control.registry import Registry
from headrace.control.runs.repository import all_of

__all__ = ["have_go_on"]


def have_go_on(context: Context, registry: Registry, source: str) -> list[str]:
    """Have a source's sinks go on that nobody works on any more; return which.

    What a recovery has rest goes on with that; where a run was putting a target in its place, with the run.
    """
    left = [entry.name for entry in registry.sinks(source) if is_withheld(context, entry.name)]
    if not left:
        return []
    with registry.reading() as session:
        if session.get(RecoveryEntry, source) is not None:
            return []
    switching = {run.plan.get("switching") for run in all_of(registry, source)}
    return [name for name in left if name not in switching and _goes_on(context, registry, name)]


def _goes_on(context: Context, registry: Registry, sink: str) -> bool:
    with worked_on(context, sink) as others_work:
        if others_work:
            return False
        with suppress(FileNotFoundError, ValueError):
            rewrite(context, sink, lambda _: {"withheld": False})
    registry.note(f"sink {sink}", "goes on", why="the command that had it rest was killed")
    return True
