"""Rows told in part are read once more, however many; one that changes each time ends the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

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


@pytest.fixture
def topic() -> Topic:
    return Topic()


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
