"""The model connector and its topic: what was committed, in order, some of it twice, reads in between."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from tests.property.simulation.source import Event, Row

__all__ = ["PLACEHOLDER", "TOPIC", "Connector", "Topic"]

TOPIC = "t"
PLACEHOLDER = "__gone__"

_ticks = count(1)


@dataclass
class Topic:
    """One partition of records; Kafka may lose them at either end.

    Attributes:
        identity: Kafka's own, which another topic of that name does not have.
        records: Key and value of each record that was ever written, as bytes; the offset is the index.
        times: When each was written; no two at the same time.
        first: The first offset that is kept.
    """

    identity: str = "i1"
    records: list[tuple[bytes, bytes]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    first: int = 0

    def append(self, key: bytes, value: bytes) -> None:
        """Write a record."""
        self.records.append((key, value))
        self.times.append(next(_ticks))

    def trim(self, first: int) -> None:
        """Forget what stands before an offset, as retention does."""
        self.first = max(self.first, first)

    def cut(self, end: int) -> None:
        """Lose the records from an offset on; later ones are written in their place."""
        del self.records[end:], self.times[end:]


class Connector:
    """Writes one topic.

    A first snapshot is a pause of the stream: rows are read as they were at its beginning, and what is
    committed meanwhile is told after them. An incremental one reads rows beside the stream, none newer than
    what was told before.

    Attributes:
        topic: Where to.
        bare_moves: Offsets of records that end a key change and leave out the large value.
    """

    def __init__(self, topic: Topic | None = None) -> None:
        self.topic = topic or Topic()
        self.bare_moves: set[int] = set()
        self._confirmed = 0
        self._waiting: list[Event] | None = None
        self._snapshot: dict[int, Row] = {}

    @property
    def records(self) -> list[tuple[bytes, bytes]]:
        """Key and value of each record."""
        return self.topic.records

    @property
    def streams(self) -> bool:
        """Whether all that is committed is in the topic."""
        return self._waiting is None

    def committed(self, events: Iterable[Event]) -> None:
        """Take over what a transaction did."""
        if self._waiting is not None:
            self._waiting.extend(events)
            return
        for event in events:
            told = event.row if event.row is None or event.whole else {**event.row, "big": PLACEHOLDER}
            if event.op == "c" and not event.whole:
                self.bare_moves.add(len(self.records))
            self._send(event.op, event.key, told, event.lsn)

    def pause(self, rows: Mapping[int, Row]) -> None:
        """Stop streaming: a snapshot of ``rows`` begins."""
        self._waiting, self._snapshot = [], dict(rows)

    def read(self, rows: Mapping[int, Row], lsn: int) -> None:
        """Write rows as a snapshot sees them, under the stream's position, not that of their change."""
        for key, row in (rows if self.streams else self._snapshot).items():
            self._send("r", key, row, lsn)

    def resume(self) -> None:
        """Stream again, first what has waited."""
        waiting, self._waiting = self._waiting or [], None
        self.committed(waiting)

    def confirm(self) -> None:
        """Note its place: what was written until now is never written again."""
        self._confirmed = len(self.records)

    def restart(self, again: int) -> None:
        """Write the newest records once more, as a connector does that died before it noted its place.

        Not those of a key change that leaves out the large value when the old key is in use again by then:
        nothing tells whose value is meant.
        """
        self.bare_moves = {move for move in self.bare_moves if move < len(self.records)}  # others were cut
        start = max(
            self._confirmed,
            len(self.records) - again,
            1 + max(filter(self._is_reused, self.bare_moves), default=-1),
        )
        for offset in range(start, len(self.records)):
            if offset in self.bare_moves:
                self.bare_moves.add(len(self.records))
            self.topic.append(*self.records[offset])

    def _is_reused(self, move: int) -> bool:
        """Return whether the old key of a key change was written after it."""
        old = self.records[move - 1][0]
        return any(key == old for key, _ in self.records[move + 1 :])

    def _send(self, op: str, key: int, row: Row | None, lsn: int) -> None:
        source = {"lsn": lsn, "txId": 1, "ts_ms": 1, "snapshot": "incremental" if op == "r" else "false"}
        before = {"id": key} if op == "d" else None
        value = {"op": op, "before": before, "after": row, "source": source}
        self.topic.append(json.dumps({"id": key}).encode(), json.dumps(value).encode())
