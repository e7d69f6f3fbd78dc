"""Rows told in part are read once more, however many; one that changes each time ends the run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from headrace.control.runs import untold as untold_rows
from headrace.control.runs.job import Job
from headrace.control.runs.left_out import TablesUnread
from headrace.control.runs.untold import Untold
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

TOPIC = "shop.public.items"
SCHEMA = TableSchema(
    TableId("public", "items"), (Column("id", LogicalType.INT32), Column("body", LogicalType.TEXT)), ("id",)
)


class Record:
    """A record of the topic, as the client of Kafka yields it."""

    def __init__(self, offset: int, key: int, op: str, body: str | None) -> None:
        row = None if op == "d" else {"id": key, "body": body}
        self._key = json.dumps({"id": key}).encode()
        before = {"id": key} if op == "d" else None
        told = {"before": before, "after": row, "source": {}, "op": op}
        self._value = json.dumps(told, separators=(",", ":")).encode()
        self._offset = offset

    @property
    def is_kept(self) -> bool:
        """Whether anybody but the record itself has its key."""
        return sys.getrefcount(self._key) > 2

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value


class Topic:
    """One topic of a run that has begun at its beginning; also what the run works with."""

    def __init__(self) -> None:
        self.told: list[Record] = []
        self.source = source_entry("shop", [SCHEMA])
        self.run = type("Run", (), {"id": "r", "plan": {"marks": {TOPIC: [0]}}})
        self.kafka = self

    def tell(self, op: str, *keys: int, body: str | None = None) -> None:
        for key in keys:
            self.told.append(Record(len(self.told), key, op, body))

    def update(self, *keys: int) -> None:
        self.tell("u", *keys, body=self.source.placeholder)

    def tables(self, _: object) -> Sequence[Any]:
        return self.source.tables

    def heed(self) -> bool:
        return False

    def ends(self, names: Sequence[str], *, committed: bool) -> dict[tuple[str, int], tuple[int, int]]:
        return {(name, 0): (0, len(self.told)) for name in names}

    def records(self, topic: str, partition: int, begin: int, end: int) -> Iterator[Record]:
        yield from self.told[begin:end]


class Watched(Topic):
    """A topic at which somebody counts, now and then, how many keys whoever reads it holds."""

    most = 0

    def records(self, topic: str, partition: int, begin: int, end: int) -> Iterator[Record]:
        for record in super().records(topic, partition, begin, end):
            if record.offset() % 500 == 0:
                self.most = max(self.most, sum(one.is_kept for one in self.told))
            yield record


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def watched() -> Watched:
    return Watched()


def over(topic: Topic) -> Untold:
    return Untold(cast("Job", topic), lambda tables: dict.fromkeys(tables, "ALTER …;"))


def asked(untold: Untold) -> list[int]:
    return [int(key.parts[0] or "") for key in untold.rows().get(TOPIC, [])]


def test_any_number_of_rows_is_read_once_more(topic: Topic) -> None:
    untold, many = over(topic), range(11_000)
    topic.update(*many)
    seen: list[int] = []
    while keys := asked(untold):
        assert len(keys) <= 500
        seen += keys
        topic.tell("r", *keys, body="whole")
    assert seen == list(many)


def test_a_row_that_changes_each_time_ends_the_run_and_says_so(topic: Topic) -> None:
    untold = over(topic)
    topic.update(*range(700))

    def go_on() -> None:
        for _ in range(100):
            topic.tell("r", *(key for key in asked(untold) if key != 7), body="whole")
            topic.update(7)

    with pytest.raises(TablesUnread) as busy:
        go_on()
    assert busy.value.code == "RESNAPSHOT_ROWS_BUSY"
    assert "public.items" in busy.value.message
    assert busy.value.tables.keys() == {SCHEMA.table}
    assert topic.told[-1].offset() > 700 + 19


def test_rows_that_are_whole_since_are_not_read_again_for_what_comes_later(topic: Topic) -> None:
    untold = over(topic)
    topic.update(*range(1_200))
    rounds = 0
    while keys := asked(untold):
        rounds += 1
        assert rounds < 10, "rows that people write keep it for ever"
        topic.tell("r", *keys, body="whole")
        topic.update(*range(1_200))
    assert rounds == 3


def test_another_row_of_the_same_key_may_be_told_in_part(topic: Topic) -> None:
    untold = over(topic)
    topic.update(1)
    assert asked(untold) == [1]
    topic.tell("r", 1, body="whole")
    topic.update(1)
    assert asked(untold) == []
    topic.tell("d", 1)
    topic.tell("c", 1, body=topic.source.placeholder)  # its key was another's; an update tells it so
    assert asked(untold) == [1]


def test_no_key_is_held_of_a_row_that_is_told_whole_after_it_was_told_in_part(watched: Watched) -> None:
    untold = over(watched)
    for key in range(3_000):
        watched.update(key)
        watched.tell("r" if key % 2 else "u", key, body="whole")
    assert asked(untold) == []
    assert watched.most < 10


@pytest.mark.parametrize("first", ["r", "u"])
def test_so_many_keys_are_held_at_once_whatever_people_write_after_a_row_is_told_whole(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    monkeypatch.setattr(untold_rows, "_MOST_HELD", 400)
    untold = over(watched)
    watched.tell(first, *range(3_000), body="whole")
    watched.update(*range(3_010))
    watched.tell("d", 7)
    watched.tell("c", 7, body=watched.source.placeholder)
    assert sorted(asked(untold)) == [7, *range(3_000, 3_010)]
    assert watched.most < 430
