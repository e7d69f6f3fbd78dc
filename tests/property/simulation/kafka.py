"""The model connector and its topic: what was committed, in order, some of it twice, reads in between."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from tests.property.simulation.source import Event, Row

__all__ = ["PLACEHOLDER", "TOPIC", "Connector"]

TOPIC = "t"
PLACEHOLDER = "__gone__"


class Connector:
    """Writes one partition.

    A first snapshot is a pause of the stream: rows are read as they were at its beginning, and what is
    committed meanwhile is told after them. An incremental one reads rows beside the stream, none newer than
    what was told before.

    Attributes:
        records: Key and value of each record, as bytes.
        bare_moves: Offsets of records that end a key change and leave out the large value.
    """

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes]] = []
        self.bare_moves: set[int] = set()
        self._waiting: list[Event] | None = None
        self._snapshot: dict[int, Row] = {}

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

    def restart(self, again: int) -> None:
        """Write the newest records once more, as a connector does that died before it noted its place.

        Not those of a key change that leaves out the large value: when the old key is in use again by then,
        nothing tells whose value is meant.
        """
        start = max(0, len(self.records) - again, 1 + max(self.bare_moves, default=-1))
        self.records += self.records[start:]

    def _send(self, op: str, key: int, row: Row | None, lsn: int) -> None:
        source = {"lsn": lsn, "txId": 1, "ts_ms": 1, "snapshot": "incremental" if op == "r" else "false"}
        before = {"id": key} if op == "d" else None
        value = {"op": op, "before": before, "after": row, "source": source}
        self.records.append((json.dumps({"id": key}).encode(), json.dumps(value).encode()))
