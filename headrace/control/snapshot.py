"""How snapshots go, read from the connector's own notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from connectors.base import Capture
from headrace.control.kafka import Kafka

__all__ = ["INITIAL", "MOST_ATTEMPTS", "Snapshot", "SnapshotState", "Told", "initial", "told_by"]

MOST_ATTEMPTS = 5
"""An initial snapshot that has begun more often than that, and has never ended, is in trouble."""


class SnapshotState(str, Enum):
    """How far a snapshot is."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    PASSED_OVER = "passed_over"
    """The connector took up a position that it had noted before it had read any row."""
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot as last heard of.

    Args:
        state: How far it is.
        scanned: Topic-prefixed or plain table name → rows read, for tables that are done.
        trouble: Table → why it was not read, e.g. ``SQL_EXCEPTION``; empty when all is well.
        attempts: How often it has begun.
        chunks: Table → parts of it that were read, of a snapshot beside the stream.
    """

    state: SnapshotState
    scanned: Mapping[str, int]
    trouble: Mapping[str, str]
    attempts: int = 1
    chunks: Mapping[str, int] = field(default_factory=dict)

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
    "ABORTED": SnapshotState.ABORTED,
}
INITIAL = "Initial Snapshot"
_OVER = ("COMPLETED", "SKIPPED", "ABORTED")
_FINE = ("SUCCEEDED", "EMPTY")


def initial(kafka: Kafka, capture: Capture, since: int = 0) -> Snapshot:
    """Return the state of the newest initial snapshot; a repeated one starts over.

    Args:
        kafka: Where the connector tells.
        capture: What it captures.
        since: The first notification that counts.
    """
    told = kafka.committed(capture.notifications, since)[0]
    return told_by(one for one in told if one.get("aggregate_type") == INITIAL)


@dataclass(slots=True)
class _Parts:
    """The parts of one table that the connector has told, of which the last one may not be sent yet."""

    ends: list[str] = field(default_factory=list)
    _count: int = 0
    _up_to: dict[str, int] = field(default_factory=dict)
    _again: str | None = None

    def told(self, key: str, *, sure: bool) -> None:
        """Add a part by the key with which it ends; unless ``sure``, what comes before it may not be sent."""
        if key != self._again:  # else what has rested has read the part once more
            self._count += 1
        self._again = None
        self._up_to.setdefault(key, self._count)
        if key in self.ends:  # a part that shares the key, or one that is read once more
            del self.ends[self.ends.index(key) + 1 :]
        elif sure:
            self.ends.append(key)

    def rested(self) -> None:
        """Take the last part for one that is not sent: it may be read once more."""
        if self.ends:
            self._again = self.ends.pop()

    @property
    def sent(self) -> tuple[str, int] | None:
        """The last key that is sent, and about how many parts are up to its first row; None when none is."""
        return (self.ends[-2], self._up_to[self.ends[-2]]) if len(self.ends) > 1 else None


class Told:
    """What the connector has told of the snapshots that it reads beside the stream, from an offset on.

    Args:
        kafka: Where it tells.
        capture: What it captures.
        offset: The first notification that counts.
    """

    def __init__(self, kafka: Kafka, capture: Capture, offset: int) -> None:
        self._kafka = kafka
        self._topic = capture.notifications
        self._next = offset
        self._known: list[dict[str, Any]] = []
        self._all: list[dict[str, Any]] = []
        self.news = False
        """Whether the last look has found something new."""

    def _look(self) -> list[dict[str, Any]]:
        said, high = self._kafka.committed(self._topic, self._next)
        fresh = [told for told in said if told.get("aggregate_type") == "Incremental Snapshot"]
        self._all += said
        self._next, self.news = max(high, self._next), bool(fresh)
        self._known += fresh
        return self._known

    def incremental(self, signal: str) -> Snapshot:
        """Return the state of the snapshot asked for by ``signal``."""
        return told_by(told for told in self._look() if told.get("id") == signal)

    def sent(self, signal: str, first: Callable[[str, str], str]) -> dict[str, tuple[str, int]]:
        """Return up to where tables are sent that are being read; nothing of those of which that is not sure.

        The connector tells the key with which a part ends when it has read it, and sends its rows before it
        reads the next. Of a key of several columns only the first value counts, which many parts may share.
        One that has rested may read the last part once more, and one that reads on after a change of columns
        may go further back; one that was started anew may read many twice, so that what it has told before
        says nothing, and neither does the first part that it tells then.

        Args:
            signal: By which they were asked for.
            first: Table, and the key with which a part of it ends → the first value of that key.

        Returns:
            Table → the first value of the last key that is sent, and about how many parts are before it.
        """
        self._look()
        parts: dict[str, _Parts] = {}
        begun = anew = False
        for told in self._all:
            kind = told.get("type")
            if told.get("aggregate_type") == INITIAL:  # the connector was started anew
                parts, anew = {}, begun
                continue
            if told.get("id") != signal:
                continue
            begun = True
            if kind == "RESUMED":
                for known in parts.values():
                    known.rested()
            elif kind == "IN_PROGRESS":
                said: Mapping[str, Any] = told.get("additional_data") or {}
                table = str(said.get("current_collection_in_progress", ""))
                key = first(table, str(said.get("last_processed_key")))
                parts.setdefault(table, _Parts()).told(key, sure=not anew)
                anew = False
        return {table: known.sent for table, known in parts.items() if known.sent is not None}

    def busy(self) -> str | None:
        """Return by which signal a snapshot was asked for that is not over; None when none is."""
        known = self._look()
        if not known or str(known[-1].get("type")) in _OVER:
            return None
        return str(known[-1].get("id", ""))


def told_by(notifications: Iterable[Mapping[str, Any]]) -> Snapshot:
    """Return how a snapshot stands by the connector's words about it, the oldest first."""
    state = SnapshotState.PENDING
    scanned: dict[str, int] = {}
    trouble: dict[str, str] = {}
    chunks: dict[str, int] = {}
    attempts, completed = 0, False
    for notification in notifications:
        kind = str(notification.get("type"))
        said: Mapping[str, Any] = notification.get("additional_data") or {}
        if kind == "STARTED":
            attempts += 1
            scanned.clear()
            trouble.clear()
            chunks.clear()
        if kind == "IN_PROGRESS":
            table = str(said.get("current_collection_in_progress", ""))
            chunks[table] = chunks.get(table, 0) + 1
        if kind == "TABLE_SCAN_COMPLETED":
            table = str(said.get("scanned_collection", ""))
            scanned[table] = int(said.get("total_rows_scanned", 0) or 0)
            if (status := said.get("status")) not in _FINE:
                trouble[table] = str(status)
        if kind == "SKIPPED":
            # The position is noted with the first word already, before any row: it proves nothing read.
            state = SnapshotState.COMPLETED if completed else SnapshotState.PASSED_OVER
        completed = completed or kind == "COMPLETED"
        state = _STATES.get(kind, state)
    return Snapshot(state, scanned, trouble, attempts, chunks)
