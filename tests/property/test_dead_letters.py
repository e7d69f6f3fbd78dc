"""Rejected records: nothing is lost, nothing newer is overwritten, and a repair makes everything equal.

A store that dislikes some values is driven with histories that hold full and partial images, deletes and
truncates, in batches of any size, some of them twice. Whatever it dislikes is set aside. At any moment a row
that is not as in the source is known to be behind; after the repair and a replay none is.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.change import Change, Op, Origin, Record, Truncate
from headrace.model.key import Key
from headrace.model.outcome import Outcome, Rejected
from headrace.model.position import Position
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.memory import MemorySink
from spark_jobs.apply import apply_records
from spark_jobs.carry import NoCarry
from spark_jobs.held import Holds
from spark_jobs.report import Report
from spark_jobs.tables import Tables

TABLE = TableId("public", "t")
SCHEMA = TableSchema(
    TABLE,
    (Column("id", LogicalType.TEXT), Column("a", LogicalType.TEXT), Column("big", LogicalType.TEXT)),
    ("id",),
)
TABLES = Tables({TABLE: SCHEMA}, {"t": (TABLE, 1)})
BAD = "bad"


class Picky(MemorySink):
    """Refuses rows whose ``a`` is bad, until it is mended."""

    def __init__(self) -> None:
        super().__init__("picky", MemorySink.Config(store=uuid.uuid4().hex))
        self.mended = False
        self.prepare(SCHEMA)

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        return [
            Rejected("PICKY", "no") if change.row.get("a") == BAD and not self.mended else outcome
            for change, outcome in zip(changes, self._tried(schema, changes), strict=True)
        ]

    def _tried(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        liked = [change for change in changes if self.mended or change.row.get("a") != BAD]
        outcomes = dict(zip((change.key for change in liked), super().apply(schema, liked), strict=True))
        return [outcomes.get(change.key, Rejected("PICKY", "no")) for change in changes]


@dataclass
class World:
    """The source, the sink and what lies between them."""

    sink: Picky = field(default_factory=Picky)
    source: dict[str, dict[str, Any]] = field(default_factory=dict)
    letters: dict[int, Record] = field(default_factory=dict)
    holds: Holds = field(default_factory=Holds)
    history: list[Record] = field(default_factory=list)

    def write(self, key: str, op: str, a: str, *, touch: bool) -> None:
        """Commit one change; ``touch`` writes the large column too, so that the image is full."""
        offset = len(self.history)
        position, origin = Position(1, offset), Origin("t", 0, offset, lsn=offset)
        if op == "truncate":
            self.source.clear()
            self.history.append(Truncate(TABLE, position, origin))
            return
        known = self.source.get(key)
        if op == "delete":
            self.source.pop(key, None)
            self.history.append(Change(TABLE, Key.of([key]), Op.DELETE, {}, frozenset(), position, origin))
            return
        partial = known is not None and not touch
        row = {"id": key, "a": a, "big": known["big"] if partial and known else f"big{offset}"}
        self.source[key] = row
        absent = frozenset({"big"}) if partial else frozenset[str]()
        sent = {name: value for name, value in row.items() if name not in absent}
        self.history.append(Change(TABLE, Key.of([key]), Op.UPSERT, sent, absent, position, origin))

    def deliver(self, records: Sequence[Record]) -> Report:
        report = apply_records(records, self.sink, TABLES, NoCarry(), self.holds)
        assert report.error is None
        for reject in report.rejects:
            self.letters[reject["offset"]] = self.history[reject["offset"]]
        self.holds = report.holds.settled()
        return report

    def replay(self, taken: Sequence[bool] = ()) -> None:
        """Apply the letters again that rows still lack; with ``taken`` only some of them."""
        lacking = [
            letter
            for _, letter in sorted(self.letters.items())
            if isinstance(letter, Change)
            and letter.position.version in self.holds.missing(str(TABLE), letter.key.id)
        ]
        self.deliver(
            [letter for letter, take in zip(lacking, taken or [True] * len(lacking), strict=False) if take]
        )

    def stored(self) -> dict[str, dict[str, Any]]:
        return {found.key: dict(found.row) for found in self.sink.scan(SCHEMA)}

    def differing(self) -> set[str]:
        stored = self.stored()
        keys = stored.keys() | self.source.keys()
        return {key for key in keys if stored.get(key) != self.source.get(key)}

    def behind(self) -> set[str]:
        return set(self.holds.held.get(str(TABLE), {}))


writes = st.tuples(
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from(["upsert"] * 8 + ["delete", "delete", "truncate"]),
    st.sampled_from(["x", "y", BAD]),
    st.booleans(),
)
batches = st.lists(st.tuples(st.lists(writes, min_size=1, max_size=6), st.booleans()), max_size=12)


def driven(steps: list[tuple[list[tuple[str, str, str, bool]], bool]]) -> World:
    world = World()
    for batch, twice in steps:
        start = len(world.history)
        for key, op, a, touch in batch:
            world.write(key, op, a, touch=touch)
        for _ in range(2 if twice else 1):
            world.deliver(world.history[start:])
        assert world.differing() <= world.behind(), "a row differs and nobody knows"
    return world


@given(batches)
def test_a_row_that_differs_is_known_to_be_behind(
    steps: list[tuple[list[tuple[str, str, str, bool]], bool]],
) -> None:
    world = driven(steps)
    for offset, record in world.letters.items():
        assert isinstance(record, Change)
        assert record.origin.offset == offset


@given(batches, st.lists(writes, max_size=4))
def test_after_the_repair_a_replay_makes_everything_equal(
    steps: list[tuple[list[tuple[str, str, str, bool]], bool]], later: list[tuple[str, str, str, bool]]
) -> None:
    world = driven(steps)
    world.sink.mended = True
    start = len(world.history)
    for key, op, a, touch in later:
        world.write(key, op, a, touch=touch)
    world.deliver(world.history[start:])
    before = {key: version for key, version in versions(world).items() if key not in world.behind()}
    world.replay()
    assert world.stored() == world.source
    assert not world.behind()
    after = versions(world)
    assert all(after.get(key) == version for key, version in before.items()), "newer data was overwritten"


def versions(world: World) -> dict[str, int]:
    return {found.key: found.version for found in world.sink.scan(SCHEMA)}


@given(batches, st.lists(st.booleans(), max_size=40))
def test_a_replay_before_the_repair_hides_nothing(
    steps: list[tuple[list[tuple[str, str, str, bool]], bool]], taken: list[bool]
) -> None:
    world = driven(steps)
    world.replay(taken)
    assert world.differing() <= world.behind()
