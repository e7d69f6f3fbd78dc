"""What the engine last said of each sink, read from its progress files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

__all__ = ["SinkProgress", "TableProgress", "read_progress"]


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
            target, or with what Kafka has for it; with ``below`` where that lacks changes: by partition, the
            offset from which on it has all.
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
        lives: Topic → the life of it that the offsets are of; the topic itself where that is not known.
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
    lives: Mapping[str, str] = field(default_factory=dict)

    def of(self, lives: Mapping[str, str]) -> SinkProgress:
        """Return the progress without offsets of topics that were made anew since."""
        former = {
            topic
            for topic, life in self.lives.items()
            if topic not in (life, lives.get(topic, topic)) and life != lives[topic]
        }
        if not former:
            return self
        kept = {place: offset for place, offset in self.next_offsets.items() if place[0] not in former}
        return replace(self, next_offsets=kept)


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
        lives=value.get("lives", {}),
    )
