"""A run as commands tell it: to people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any

from headrace.cli.output import err, out, print_hint, print_json
from headrace.control.context import Context
from headrace.control.registry import Registry, ResnapshotEntry, now_ms
from headrace.control.runs.repository import active, topics_of
from headrace.control.runs.settling import records_left
from headrace.control.runs.start import MAX_LATENCY_MS, swept_by
from headrace.control.runs.words import state_of

__all__ = ["RunState", "described", "tables_of", "tell", "tell_it_goes_on", "telling_of_new"]

_TOLD = (
    "source",
    "tables",
    "sinks",
    "read",
    "estimate",
    "to_apply",
    "written",
    "swept",
    "seconds",
    "rows_per_second",
    "max_latency_ms",
    "who",
    "why",
    "reason",
    "hint",
)


class RunState(str, Enum):
    """What a run is in one word."""

    QUEUED = "queued"
    READING = "reading"
    APPLYING = "applying"
    SWEEPING = "sweeping"
    PAUSING = "pausing"
    PAUSED = "paused"
    ABORTING = "aborting"
    UNFINISHED = "unfinished"
    COMPLETED = "completed"
    ABORTED = "aborted"
    FAILED = "failed"


def described(context: Context, run: ResnapshotEntry) -> dict[str, Any]:
    """Return a run JSON-ready; ``to_apply`` is null unless it applies or sweeps."""
    error = run.error or {}
    return {
        "run": run.id,
        "source": run.source,
        "state": state_of(run),
        "phase": run.phase,
        "wanted": run.wanted,
        "tables": sorted(topic.removeprefix(f"{run.source}.") for topic in topics_of(run)),
        "left_out": run.plan.get("left_out", {}),
        "sinks": run.plan["sinks"],
        "read": sum(run.counts.get("read", {}).values()),
        "estimate": run.plan.get("estimate"),
        "to_apply": records_left(context, run),
        "written": sum(run.counts.get("written", {}).values()),
        "swept": sum(done.removed for done in swept_by(run)),
        "seconds": ((run.ended_ms or now_ms()) - (run.asked_ms or run.begun_ms)) / 1000,
        "rows_per_second": run.plan.get("rows_per_second"),
        "max_latency_ms": run.plan.get("max_latency_ms", MAX_LATENCY_MS),
        "begun_ms": run.begun_ms,
        "ended_ms": run.ended_ms,
        "who": run.who,
        "why": run.why,
        "reason": run.reason,
        "code": error.get("code", ""),
        "hint": error.get("hint", ""),
    }


def tables_of(run: Mapping[str, Any]) -> str:
    """Return the tables of a run that is described, and those that it has left out."""
    tables, left_out = ", ".join(run["tables"]), ", ".join(run["left_out"])
    return f"{tables}; left out: {left_out}" if left_out else tables


def tell(context: Context, run: ResnapshotEntry, *, as_json: bool) -> None:
    """Print a run."""
    told = described(context, run)
    if as_json:
        print_json(told)
        return
    out.print(f"[bold]{told['run']}[/]  {told['state']}", highlight=False)
    for word in _TOLD:
        value = told[word]
        if value not in ("", None):
            said = ", ".join(value) if isinstance(value, list) else value
            print_hint(f"{word.replace('_', ' ')}: {said}")
    for table, reason in told["left_out"].items():
        print_hint(f"left out: {table}: {reason}")


@contextmanager
def telling_of_new(context: Context, source: str, *, as_json: bool) -> Iterator[None]:
    """Say on standard error that a run goes on which the block had begun when it was interrupted."""
    registry = Registry(context.registry)
    before = {run.id for run in active(registry, source)}
    try:
        yield
    except KeyboardInterrupt:
        for run in active(registry, source):
            if run.id not in before:
                tell_it_goes_on(run.id, as_json=as_json)
        raise


def tell_it_goes_on(run: str, *, as_json: bool) -> None:
    """Say on standard error that a run goes on though nobody waits for it any more."""
    hint = f"`headrace resnapshot wait {run}`, or `headrace resnapshot abort {run}`"
    if as_json:
        print_json({"run": run, "interrupted": True, "hint": hint}, aside=True)
        return
    print_hint(f"run {run} goes on; {hint}", to=err)
