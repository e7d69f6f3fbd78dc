"""What the engine last said of each sink, read from its progress files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.model.errors import SinkError

__all__ = ["SinkProgress", "TableProgress", "read_progress", "refuse_at_rest", "wait_settled"]

_AT_REST = ("failed", "paused", "removed", "stopped")


@dataclass(frozen=True, slots=True)
class TableProgress:
    """Counters of one table at one sink.

    Args:
        applied, stale, rejected: Changes by outcome.
        behind: Rows whose newest change is in the dead letter queue.
        drift: ``added`` and ``missing`` columns of the newest record, against what is mirrored.
        last_commit_ms: Commit time of the newest streamed change applied, Unix milliseconds.
        last_applied_ms: When it was applied.
        trouble: ``{"code", "state", "message", "hint", "since_ms"}`` when something is wrong with the table's
            target, or with what Kafka has for it.
    """

    applied: int = 0
    stale: int = 0
    rejected: int = 0
    behind: int = 0
    drift: Mapping[str, Any] | None = None
    last_commit_ms: int | None = None
    last_applied_ms: int | None = None
    trouble: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """One progress file.

    Args:
        state: The engine's word: starting, running, degraded, paused, failed, stopped or removed.
        error: ``{"code", "message", "hint"}`` when something is wrong.
        updated_ms: When the file was written, Unix milliseconds.
        first_row_ms: When the first change was applied.
        next_offsets: ``(topic, partition)`` → the next offset to read; everything below is settled, and the
            store had it when it was asked last.
        checked_ms: When the store was asked what it has; None when it has not been.
        applying_since_ms: When a batch of many records was begun; None once the store was asked after it.
        tables: Table → counters.
        latency_ms: Commit → applied of streamed changes in the last minutes: p50, p99, count, window_seconds.
    """

    state: str
    error: Mapping[str, str] | None
    updated_ms: int
    first_row_ms: int | None
    next_offsets: Mapping[tuple[str, int], int]
    tables: Mapping[str, TableProgress]
    latency_ms: Mapping[str, Any]
    checked_ms: int | None = None
    applying_since_ms: int | None = None


_COUNTERS = (
    "applied",
    "stale",
    "rejected",
    "behind",
    "drift",
    "last_commit_ms",
    "last_applied_ms",
    "trouble",
)


def read_progress(directory: Path, sink: str) -> SinkProgress | None:
    """Return the sink's progress; None when the engine has not written any yet."""
    try:
        value: dict[str, Any] = json.loads((directory / f"{sink}.json").read_text())
    except (OSError, ValueError):
        return None
    return SinkProgress(
        state=value["state"],
        error=value.get("error"),
        updated_ms=value["updated_ms"],
        first_row_ms=value.get("first_row_ms"),
        next_offsets={
            (topic, int(partition)): offset
            for topic, partitions in value.get("offsets", {}).items()
            for partition, offset in partitions.items()
        },
        tables={
            table: TableProgress(**{name: counters[name] for name in _COUNTERS if name in counters})
            for table, counters in value.get("tables", {}).items()
        },
        latency_ms=value.get("latency_ms", {}),
        checked_ms=value.get("checked_ms"),
        applying_since_ms=value.get("applying_since_ms"),
    )


def wait_settled(
    directory: Path, sink: str, ends: Mapping[tuple[str, int], int], *, say: Callable[[str], None]
) -> None:
    """Return when the sink has settled partitions up to ``ends``.

    It is patient with a slow sink, not with one at rest.

    Raises:
        SinkError: When the sink's query does not run (``SINK_AT_REST``).
    """
    told = -1
    while True:
        progress = read_progress(directory, sink)
        refuse_at_rest(sink, progress)
        settled = progress.next_offsets if progress else {}
        behind = sum(max(0, end - settled.get(place, 0)) for place, end in ends.items())
        if behind == 0:
            return
        if behind != told:
            say(f"{sink}: {behind:,} records to apply before the sweep")
            told = behind
        time.sleep(0.3)


def refuse_at_rest(
    sink: str, progress: SinkProgress | None, *, again: str = "run the same command again"
) -> None:
    """Refuse to wait for a sink whose query does not run.

    Args:
        sink: Its name.
        progress: What the engine says of it.
        again: What to do once it runs.

    Raises:
        SinkError: ``SINK_AT_REST``.
    """
    if progress is not None and progress.state in _AT_REST:
        raise SinkError(
            f"Sink {sink} is {progress.state}, so what it holds cannot be swept yet.",
            code="SINK_AT_REST",
            hint=f"headrace sink resume {sink}; then {again}.",
        )
