"""Several partitions: whatever each of them is behind the others, a truncate empties them all, and no more.

A model of the source writes, moves keys, truncates and reads anew, through a connector that may repeat
itself, into a topic of three partitions. They are applied in batches that end anywhere in each of them, by
one task or several, some of them twice. When everything is delivered, the sink equals the source; and at any
moment before, no row is shown older than it was.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from connectors.debezium import Decoder, lsn_of
from headrace.config.pipeline import PipelineSpec, TableSpec
from headrace.model.change import Origin, Record
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.memory import MemorySink
from spark_jobs.apply import apply_records
from spark_jobs.carry import NoCarry
from spark_jobs.checkpoint import put_aside
from spark_jobs.emptying import Emptyings
from spark_jobs.held import Holds
from spark_jobs.peek import Mark
from spark_jobs.report import Report
from spark_jobs.tables import Tables

TABLE = TableId("public", "t")
SCHEMA = TableSchema(TABLE, (Column("id", LogicalType.INT32), Column("a", LogicalType.TEXT)), ("id",))
TOPIC = "s.public.t"
PARTITIONS = 3
KEYS = st.integers(1, 7)

Row = dict[str, object]


@dataclass
class Topic:
    """What was sent, and when; a look into it sees all."""

    logs: list[list[tuple[int, bytes]]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def marks(self, topic: str, partition: int, begin: int, end: int) -> list[Mark]:
        log = self.logs[partition][begin:end]
        return [Mark(offset, lsn_of(value), at_ms) for offset, (at_ms, value) in enumerate(log, begin)]

    def first_since(self, topic: str, partition: int, at_ms: int) -> int | None:
        return next((n for n, (sent, _) in enumerate(self.logs[partition]) if sent >= at_ms), None)

    def beginning(self, topic: str, partition: int) -> int:
        return 0


@dataclass
class World:
    """The source, its connector and the topic."""

    topic: Topic = field(default_factory=Topic)
    rows: dict[int, Row] = field(default_factory=dict)
    sent: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    now: int = 1_000
    lsn: int = 0

    def send(self, partition: int, op: str, row: Row | None, *, streamed: bool = True) -> None:
        image = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        source = {"lsn": self.lsn if streamed else None, "txId": 1, "ts_ms": 1, "snapshot": "false"}
        envelope = {**image, "op": op, "source": source}
        self.topic.logs[partition].append((self.now, orjson.dumps(envelope)))
        if streamed:
            self.sent.append((partition, envelope))

    def write(self, key: int) -> None:
        self.lsn += 1
        op = "u" if key in self.rows else "c"
        self.rows[key] = {"id": key, "a": f"a{self.lsn}"}
        self.send(key % PARTITIONS, op, self.rows[key])

    def delete(self, key: int) -> None:
        if (row := self.rows.pop(key, None)) is not None:
            self.lsn += 1
            self.send(key % PARTITIONS, "d", {"id": row["id"]})

    def move(self, old: int, new: int) -> None:
        if old in self.rows and new not in self.rows:
            self.lsn += 1
            self.rows[new] = {**self.rows.pop(old), "id": new}
            self.send(old % PARTITIONS, "d", {"id": old})
            self.send(new % PARTITIONS, "c", self.rows[new])

    def truncate(self, partition: int) -> None:
        self.lsn += 1
        self.rows.clear()
        self.send(partition % PARTITIONS, "t", None)

    def read_anew(self) -> None:
        for key, row in sorted(self.rows.items()):
            self.send(key % PARTITIONS, "r", row, streamed=False)

    def attach(self, key: int) -> None:
        """Have a row come with a partition of its table, which no change tells of; then read anew."""
        if key not in self.rows:
            self.rows[key] = {"id": key, "a": "attached"}
            self.now += 1
            self.sent.clear()  # a connector that has got so far does not repeat what was before
            self.read_anew()

    def repeat(self, count: int) -> None:
        """Send the last changes once more, as a connector does that died before it noted how far it was."""
        self.now += 1
        for partition, envelope in self.sent[-count:]:
            self.topic.logs[partition].append((self.now, orjson.dumps(envelope)))


class Applied:
    """A sink's query over the topic."""

    def __init__(self, topic: Topic, folder: Path) -> None:
        table = TableSpec(topic=TOPIC, epoch=1, table=SCHEMA.as_dict(), partitions=PARTITIONS)
        self.topic = topic
        self.spec = PipelineSpec(
            sink="s", kind="memory", settings={}, source="s", kafka_bootstrap="", placeholder="%%",
            tables=(table,), checkpoint=folder, dead_letters=folder, owner=folder, home="",
        )  # fmt: skip
        self.sink = MemorySink("s", MemorySink.Config(store=uuid.uuid4().hex))
        self.sink.prepare(SCHEMA)
        self.decoder = Decoder(SCHEMA, 1, "%%")
        self.ends: dict[tuple[str, int], int] = {}
        self.shown: dict[str, int] = {}

    def batch(
        self, counts: Sequence[int], order: Callable[[list[Record]], list[Record]], tries: Sequence[str]
    ) -> None:
        """Apply so many records more of each partition; ``tries`` says how often, and how far each time."""
        begins = dict(self.ends)
        ends = {
            (TOPIC, n): min(begins.get((TOPIC, n), -1) + count, len(log) - 1)
            for n, (count, log) in enumerate(zip(counts, self.topic.logs, strict=True))
        }
        for attempt in [*tries, "whole"]:
            parts = [self._records(n, begins, ends) for n in range(PARTITIONS)]
            tasks = parts if attempt == "apart" else [order([record for part in parts for record in part])]
            report = Report.merged(self._apply(task) for task in tasks)
            if attempt != "half":
                # A new one each time: what it has to remember is in its file.
                Emptyings(self.spec, self.topic).empty(self.sink, report, begins, ends, self._unplaced)
                assert put_aside(self.spec.checkpoint) is None
            self._look()
        self.ends = ends

    def _records(
        self, partition: int, begins: dict[tuple[str, int], int], ends: dict[tuple[str, int], int]
    ) -> list[Record]:
        place = TOPIC, partition
        return [
            self.decoder.decode_raw(Origin(*place, n), None, self.topic.logs[partition][n][1])
            for n in range(begins.get(place, -1) + 1, ends[place] + 1)
        ]

    def _apply(self, records: list[Record]) -> Report:
        tables = Tables({TABLE: SCHEMA}, {TOPIC: (TABLE, 1)})
        report = apply_records(records, self.sink, tables, NoCarry(), Holds())
        assert report.error is None
        assert not report.rejects
        return Report.load(report.dump())

    def _unplaced(self, topic: str, partition: int) -> None:
        raise AssertionError("nothing of the topic is lost")

    def _look(self) -> None:
        for stored in self.sink.scan(SCHEMA):
            assert stored.version >= self.shown.get(stored.key, 0), "a row went back in its history"
            self.shown[stored.key] = stored.version

    def rows(self) -> dict[int, Row]:
        return {int(stored.key): dict(stored.row) for stored in self.sink.scan(SCHEMA)}


STEPS = st.one_of(
    st.tuples(st.just("write"), KEYS),
    st.tuples(st.just("write"), KEYS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("move"), KEYS, KEYS),
    st.tuples(st.just("truncate"), KEYS),
    st.tuples(st.just("read_anew")),
    st.tuples(st.just("attach"), KEYS),
    st.tuples(st.just("repeat"), st.integers(1, 12)),
    st.tuples(st.just("wait"), st.sampled_from([1, 1_000, 61_000])),
    st.tuples(
        st.just("batch"),
        st.lists(st.integers(0, 6), min_size=PARTITIONS, max_size=PARTITIONS),
        st.lists(st.sampled_from(["half", "whole", "apart"]), max_size=2),
    ),
)


@given(st.lists(STEPS, max_size=40), st.randoms())
def test_a_truncate_empties_every_partition_and_takes_nothing_that_came_later(
    steps: list[tuple[Any, ...]], random: Any
) -> None:
    def mixed(records: list[Record]) -> list[Record]:
        """Return them in any order that keeps each partition's."""
        left = [[r for r in records if r.origin.partition == n] for n in range(PARTITIONS)]
        found: list[Record] = []
        while some := [part for part in left if part]:
            found.append(random.choice(some).pop(0))
        return found

    with tempfile.TemporaryDirectory() as folder:
        world = World()
        applied = Applied(world.topic, Path(folder))
        for what, *more in steps:
            if what == "batch":
                applied.batch(more[0], mixed, more[1])
            elif what == "wait":
                world.now += more[0]
            else:
                getattr(world, what)(*more)
        applied.batch([10_000] * PARTITIONS, mixed, "")
        assert applied.rows() == world.rows
