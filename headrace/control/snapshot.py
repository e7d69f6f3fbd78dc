"""How snapshots go, read from the connector's own notifications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from connectors.base import Capture
from headrace.control.kafka import Kafka

__all__ = ["Snapshot", "SnapshotState", "incremental", "initial"]


class SnapshotState(str, Enum):
    """How far a snapshot is."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot as last heard of.

    Args:
        state: How far it is.
        scanned: Topic-prefixed or plain table name → rows read, for tables that are done.
        trouble: Table → why it was not read, e.g. ``SQL_EXCEPTION``; empty when all is well.
    """

    state: SnapshotState
    scanned: Mapping[str, int]
    trouble: Mapping[str, str]

    def unread(self, tables: Iterable[str]) -> dict[str, str]:
        """Return which tables were not read whole, and why.

        A table that the connector does not find is passed over without a word; only at the end is it known.
        """
        over = tables if self.state is SnapshotState.COMPLETED else ()
        return {**{table: "not read" for table in over if table not in self.scanned}, **self.trouble}


_STATES = {
    "STARTED": SnapshotState.RUNNING,
    "IN_PROGRESS": SnapshotState.RUNNING,
    "TABLE_SCAN_COMPLETED": SnapshotState.RUNNING,
    "PAUSED": SnapshotState.RUNNING,
    "RESUMED": SnapshotState.RUNNING,
    "COMPLETED": SnapshotState.COMPLETED,
    "SKIPPED": SnapshotState.COMPLETED,
    "ABORTED": SnapshotState.ABORTED,
}
_FINE = ("SUCCEEDED", "EMPTY")


def initial(kafka: Kafka, capture: Capture) -> Snapshot:
    """Return the state of the newest initial snapshot; a repeated one starts over."""
    return _told(n for n in _notifications(kafka, capture) if n.get("aggregate_type") == "Initial Snapshot")


def incremental(kafka: Kafka, capture: Capture, signal: str) -> Snapshot:
    """Return the state of the incremental snapshot asked for by ``signal``."""
    return _told(
        n
        for n in _notifications(kafka, capture)
        if n.get("aggregate_type") == "Incremental Snapshot" and n.get("id") == signal
    )


def _notifications(kafka: Kafka, capture: Capture) -> Iterable[dict[str, Any]]:
    topic = capture.notifications
    low, high = kafka.ends([topic]).get((topic, 0), (0, 0))
    return kafka.values(topic, low, high)


def _told(notifications: Iterable[dict[str, Any]]) -> Snapshot:
    state = SnapshotState.PENDING
    scanned: dict[str, int] = {}
    trouble: dict[str, str] = {}
    for notification in notifications:
        kind = str(notification.get("type"))
        said: Mapping[str, Any] = notification.get("additional_data") or {}
        if kind == "STARTED":
            scanned.clear()
            trouble.clear()
        if kind == "TABLE_SCAN_COMPLETED":
            table = str(said.get("scanned_collection", ""))
            scanned[table] = int(said.get("total_rows_scanned", 0) or 0)
            if (status := said.get("status")) not in _FINE:
                trouble[table] = str(status)
        state = _STATES.get(kind, state)
    return Snapshot(state, scanned, trouble)
