"""The chain simulated: what a database does, what Kafka repeats, where a driver dies, what a store refuses.

The code under test is the real one, from a record's bytes to the sink's outcomes and what a batch keeps for
the next: decode, collapse, apply, carry, holds. The source, Kafka and the checkpoint are models, and no time
passes. All along no row goes back in its history (I2, I3), and a row that differs though everything was
delivered is known to be behind (I4, I12). At rest, with the store mended and the letters replayed, the sink
equals the source (I1, I6).
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from connectors.debezium import Decoder
from headrace.model.change import Change, Origin, Record
from headrace.model.outcome import Outcome, Rejected
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.memory import MemorySink
from spark_jobs.apply import Report, Tables, apply_records
from spark_jobs.carry import Carry, NoCarry
from spark_jobs.held import load_holds, save_holds

TABLE = TableId("public", "t")
SCHEMA = TableSchema(
    TABLE,
    (Column("id", LogicalType.INT32), Column("a", LogicalType.TEXT), Column("big", LogicalType.TEXT)),
    ("id",),
)
TABLES = Tables({TABLE: SCHEMA}, {"t": (TABLE, 1)})
PLACEHOLDER = "__gone__"
BAD = "bad"
KEYS = st.integers(1, 3)
TEXTS = st.sampled_from(["x", "y", BAD])


class Died(Exception):
    """The driver was killed."""


class Store(MemorySink):
    """Survives the driver; refuses some rows until it is mended; the driver may die around a call to it."""

    def __init__(self) -> None:
        super().__init__("store", MemorySink.Config(store=uuid.uuid4().hex))
        self.mended = False
        self.death: tuple[int, str] | None = None
        self.calls = 0
        self.prepare(SCHEMA)

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        self.calls += 1
        self._die("before")
        half = changes[: len(changes) // 2] if self.death == (self.calls, "half") else changes
        liked = [change for change in half if self.mended or change.row.get("a") != BAD]
        outcomes = dict(zip((change.key for change in liked), super().apply(schema, liked), strict=True))
        self._die("half")
        self._die("after")
        return [outcomes.get(change.key, Rejected("STORE_DISLIKES", "no")) for change in changes]

    def _die(self, moment: str) -> None:
        if self.death == (self.calls, moment):
            raise Died


@dataclass
class Kafka:
    """One partition; a record is its bytes."""

    records: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def send(self, key: int, op: str, before: Any, after: Any, lsn: int | None) -> None:
        source = {"lsn": lsn, "txId": 1, "ts_ms": 1, "snapshot": "false" if op != "r" else "incremental"}
        value = {"op": op, "before": before, "after": after, "source": source}
        self.records.append((json.dumps({"id": key}).encode(), json.dumps(value).encode()))


class Chain(RuleBasedStateMachine):
    """A table, its topic, a driver that may die anywhere, and a store."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.checkpoint = Path(self._folder.name)
        self.source: dict[int, dict[str, Any]] = {}
        self.kafka = Kafka()
        self.store = Store()
        self.decoder = Decoder(SCHEMA, 1, PLACEHOLDER)
        self.lsn = 0
        self.batch = 0
        self.planned: tuple[int, int] | None = None
        self.settled = 0
        self.letters: set[int] = set()
        self.versions: dict[str, int] = {}

    def teardown(self) -> None:
        self.store.mended = True
        while self.settled < len(self.kafka.records):
            self.deliver(len(self.kafka.records), None)
        self.replay()
        assert self.stored() == {str(key): row for key, row in self.source.items()}
        assert not self.behind()
        self._folder.cleanup()

    # ------------------------------------------------------------ the database

    @initialize(keys=st.sets(KEYS))
    def snapshot_of_the_beginning(self, keys: set[int]) -> None:
        for key in sorted(keys):
            self.source[key] = {"id": key, "a": "x", "big": "first"}
            self.kafka.send(key, "r", None, self.source[key], 0)

    @rule(key=KEYS, a=TEXTS, touch=st.booleans())
    def write(self, key: int, a: str, touch: bool) -> None:
        self.lsn += 1
        known = self.source.get(key)
        big = f"big{self.lsn}" if touch or known is None else known["big"]
        self.source[key] = {"id": key, "a": a, "big": big}
        sent = self.source[key] if touch or known is None else {**self.source[key], "big": PLACEHOLDER}
        self.kafka.send(key, "c" if known is None else "u", None, sent, self.lsn)

    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        if self.source.pop(key, None) is not None:
            self.lsn += 1
            self.kafka.send(key, "d", {"id": key}, None, self.lsn)

    @rule(old=KEYS, new=KEYS, a=TEXTS)
    def change_key(self, old: int, new: int, a: str) -> None:
        if old not in self.source or new in self.source:
            return
        self.lsn += 1
        row = self.source.pop(old)
        self.source[new] = {**row, "id": new, "a": a}
        self.kafka.send(old, "d", {"id": old}, None, self.lsn)
        self.kafka.send(new, "c", None, {**self.source[new], "big": PLACEHOLDER}, self.lsn)

    @rule()
    def truncate(self) -> None:
        self.source.clear()
        self.kafka.send(0, "t", None, None, None)

    @rule()
    def read_anew(self) -> None:
        for key, row in self.source.items():
            self.kafka.send(key, "r", None, row, None)

    # ------------------------------------------------------------ the driver

    @rule(
        count=st.integers(1, 8),
        death=st.none()
        | st.tuples(st.integers(1, 2), st.sampled_from(["before", "half", "after"]))
        | st.sampled_from(["applied", "held", "quarantined"]),
    )
    def deliver(self, count: int, death: tuple[int, str] | str | None) -> None:
        """Run a batch, that of before if the driver died in it; Kafka gives the same records again."""
        if self.planned is None:
            self.planned = self.settled, min(self.settled + count, len(self.kafka.records))
        start, end = self.planned
        self.store.calls = 0
        self.store.death = death if isinstance(death, tuple) else None
        carry = Carry(self.checkpoint / "carried", self.batch)
        records = [self._record(offset) for offset in range(start, end)]
        try:
            report = apply_records(records, self.store, TABLES, carry, load_holds(self.checkpoint))
        except Died:
            return
        finally:
            self.store.death = None
        assert report.error is None
        if death == "applied":
            return
        report.holds.add(load_holds(self.checkpoint))
        save_holds(self.checkpoint, report.holds)
        if death == "held":
            return
        self._set_aside(report)
        if death == "quarantined":
            return
        carry.discard(report.spent)
        self.settled, self.planned, self.batch = end, None, self.batch + 1

    @precondition(lambda self: self.planned is None)
    @rule()
    def replay(self) -> None:
        """Apply the letters again that rows still lack."""
        holds = load_holds(self.checkpoint)
        chosen = [
            record
            for record in map(self._record, sorted(self.letters))
            if isinstance(record, Change)
            and record.position.version in holds.missing(str(TABLE), record.key.id)
        ]
        report = apply_records(chosen, self.store, TABLES, NoCarry(), holds)
        assert report.error is None
        save_holds(self.checkpoint, report.holds)

    @rule(back=st.integers(1, 6))
    @precondition(lambda self: self.planned is None)
    def deliver_the_past_again(self, back: int) -> None:
        """A copy of an old checkpoint: what was settled is delivered once more."""
        self.settled = max(0, self.settled - back)

    # ------------------------------------------------------------ what has to hold

    @invariant()
    def no_row_goes_back(self) -> None:
        now = {stored.key: stored.version for stored in self.store.scan(SCHEMA)}
        for key, version in now.items():
            assert version >= self.versions.get(key, 0), "a row went back in its history"
        self.versions |= now

    @invariant()
    def a_row_that_differs_is_known(self) -> None:
        if self.planned is not None or self.settled < len(self.kafka.records):
            return
        stored, wanted = self.stored(), {str(key): row for key, row in self.source.items()}
        differing = {key for key in stored.keys() | wanted.keys() if stored.get(key) != wanted.get(key)}
        assert differing <= self.behind(), "a row differs and nobody knows"

    def stored(self) -> dict[str, dict[str, Any]]:
        return {found.key: dict(found.row) for found in self.store.scan(SCHEMA)}

    def behind(self) -> set[str]:
        return set(load_holds(self.checkpoint).held.get(str(TABLE), {}))

    def _record(self, offset: int) -> Record:
        return self.decoder.decode_raw(Origin("t", 0, offset), *self.kafka.records[offset])

    def _set_aside(self, report: Report) -> None:
        self.letters |= {reject["offset"] for reject in report.rejects}


TestChain = pytest.mark.timeout(0)(Chain.TestCase)
