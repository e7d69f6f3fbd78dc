"""A topic that ends below where it was seen to end has lost records; what only looks so has not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.control.ends import WENT_BACK, read_ends
from headrace.control.registry import Registry
from headrace.control.verdicts import healed, standing
from headrace.model.errors import StackError
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

A, B = "shop.public.a", "shop.public.b"


class Broker:
    """Two topics, of two partitions and of one; it may be away, and tell other ends once."""

    def __init__(self) -> None:
        self.told = {(A, 0): (0, 100), (A, 1): (0, 50), (B, 0): (0, 10)}
        self.identities = {A: "x", B: "x"}
        self.once: dict[tuple[str, int], tuple[int, int]] = {}
        self.away = False

    def ends(self, names: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        if self.away:
            raise StackError("Kafka does not answer.", code="KAFKA_UNREACHABLE", hint="")
        told, self.once = {**self.told, **self.once}, {}
        return {place: ends for place, ends in told.items() if place[0] in names}

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self.identities[name] for name in names if name in self.identities}


class Looks:
    """Looks at a source whose tables are these topics."""

    def __init__(self, folder: Path) -> None:
        self.registry, self.broker = Registry(folder / "registry.db"), Broker()
        schemas = [
            TableSchema(TableId("public", name), (Column("id", LogicalType.INT32),), ("id",)) for name in "ab"
        ]
        with self.registry.begin() as session:
            session.add(source_entry("shop", schemas))

    def look(self) -> dict[str, tuple[str, str, str]]:
        """Look once; return topic → what stands upon it."""
        read_ends(self.registry, cast("Any", self.broker), self.registry.source("shop"))
        found = standing(self.registry, "shop")
        assert {one.code for one in found} <= {WENT_BACK}
        return {one.topic: (one.state, one.reason, one.remedy) for one in found}


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    looks = Looks(tmp_path)
    assert looks.look() == {}
    return looks


def test_records_that_kafka_has_lost_are_told_of_their_table_until_a_run_has_read_it(looks: Looks) -> None:
    looks.broker.told[A, 1] = (0, 40)
    looks.broker.told[A, 0] = (0, 120)
    said = (
        f"Kafka has lost records of {A}: partition 1 ends at 40, and was seen to end at 50",
        "headrace recover shop",
    )
    assert looks.look() == {A: ("resync_required", *said)}
    looks.broker.told[A, 1] = (0, 90)  # others came in their place
    assert looks.look().keys() == {A}
    run = looks.registry.moment("shop")
    looks.look()
    healed(looks.registry, "shop", A, "", run)
    assert looks.look() == {}, "it was noted once, when it was found"
    looks.broker.told[A, 0] = (0, 119)
    assert looks.look().keys() == {A}


def test_what_was_seen_highest_counts_whoever_looked(looks: Looks) -> None:
    looks.broker.told[B, 0] = (0, 30)
    looks.look()
    again = Looks.__new__(Looks)
    again.registry, again.broker = looks.registry, Broker()
    assert again.look().keys() == {B}


def test_what_retention_takes_is_not_lost(looks: Looks) -> None:
    looks.broker.told |= {(A, 0): (100, 100), (A, 1): (50, 50), (B, 0): (10, 10)}
    assert looks.look() == {}


def test_a_topic_that_is_made_anew_or_gone_is_another_thing(looks: Looks) -> None:
    looks.broker.told[A, 0] = (0, 0)
    looks.broker.identities[A] = "y"
    del looks.broker.told[B, 0], looks.broker.identities[B]
    assert looks.look() == {}
    with looks.registry.begin() as session:  # as a recovery notes it
        session.get_one(type(looks.registry.source("shop")), "shop").tables[0].topic_id = "y"
    assert looks.look() == {}
    looks.broker.told[A, 0] = (0, 7)
    looks.look()
    looks.broker.told[A, 0] = (0, 6)
    assert looks.look().keys() == {A}


def test_what_is_told_for_a_moment_only_is_read_again(looks: Looks) -> None:
    looks.broker.once = {(A, 0): (0, 3)}
    assert looks.look() == {}


def test_while_kafka_does_not_answer_what_was_seen_is_kept(looks: Looks) -> None:
    looks.broker.away = True
    assert looks.look() == {}
    looks.broker.away = False
    looks.broker.told[B, 0] = (0, 9)
    assert looks.look().keys() == {B}
