"""Sinks that apply nothing, why, and what ends that; and waiting for a sink that does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from headrace.config.pipeline import load_pipeline
from headrace.control.context import Context
from headrace.control.pipelines import spec_path, worked_on
from headrace.control.progress import read_progress
from headrace.control.runner import engine_state, runs_now
from headrace.model.errors import SinkError

__all__ = ["refuse_at_rest", "resting", "wait_settled", "way_back"]

_COMES_S = 45.0
"""The guardian's longest pause between two drivers, and the time that one takes to its first word."""


def resting(context: Context, sink: str) -> str:
    """Return why a sink applies nothing: paused, failed, removed or stopped; empty when it does.

    Whether it is paused is what it was told, for the engine's word follows a little later.
    """
    try:
        spec = load_pipeline(spec_path(context, sink))
        if spec.paused or (spec.withheld and not _is_worked_on(context, sink)):
            return "paused"
    except FileNotFoundError:
        return "removed"
    except ValueError:
        return "failed"
    progress = read_progress(context.progress, sink)
    if progress is None or (progress.state == "stopped" and _comes(context)):
        return ""  # an engine that is starting has not come to it yet
    return progress.state if progress.state in ("failed", "stopped") else ""


def _comes(context: Context) -> bool:
    """Return whether an engine is there, or is being started, that takes up its sinks soon."""
    if not runs_now(context):
        return False
    told = engine_state(context.progress)
    # A driver has ended, and its guardian starts the next one.
    between = told["state"] == "stopped" and time.time() - told["updated_ms"] / 1000 < _COMES_S
    return between or told["state"] in ("starting", "ready")


def _is_worked_on(context: Context, sink: str) -> bool:
    with worked_on(context, sink) as found:
        return found


def way_back(context: Context, sink: str, state: str) -> tuple[str, str]:
    """Return what a sink at rest says of itself, empty when nothing, and what has it apply again.

    Args:
        context: The installation.
        sink: Its name.
        state: Why it applies nothing, see :func:`resting`.
    """
    progress = read_progress(context.progress, sink) if state == "failed" else None
    error = (progress.error if progress else None) or {}
    return error.get("message", ""), error.get("hint") or f"headrace sink resume {sink}"


def refuse_at_rest(context: Context, sink: str, *, again: str = "") -> None:
    """Refuse to wait for a sink whose query does not run.

    Args:
        context: The installation.
        sink: Its name.
        again: The command to run once it runs; empty for the one that asks.

    Raises:
        SinkError: ``SINK_AT_REST``.
    """
    if not (state := resting(context, sink)):
        return
    why, way = way_back(context, sink, state)
    said = f"Sink {sink} is {state}, so what it holds cannot be swept yet."
    way, comment, more = way.partition("  # ")
    after = f"; {more}" if comment else ""
    joint = " && " if way.startswith("headrace ") else " -- then: "
    hint = f"{way}{joint}{again}" if again else f"{way}  # then run the same command again"
    raise SinkError(f"{said} {why}".strip(), code="SINK_AT_REST", hint=f"{hint}{after}")


def wait_settled(
    context: Context, sink: str, ends: Mapping[tuple[str, int], int], *, say: Callable[[str], None]
) -> None:
    """Return when the sink has settled partitions up to ``ends``.

    It is patient with a slow sink, not with one at rest.

    Raises:
        SinkError: When the sink's query does not run (``SINK_AT_REST``).
    """
    told = -1
    while True:
        refuse_at_rest(context, sink)
        progress = read_progress(context.progress, sink)
        settled = progress.next_offsets if progress else {}
        behind = sum(max(0, end - settled.get(place, 0)) for place, end in ends.items())
        if behind == 0:
            return
        if behind != told:
            say(f"{sink}: {behind:,} records to apply before the sweep")
            told = behind
        time.sleep(0.3)
