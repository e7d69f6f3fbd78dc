"""What is told of a TRUNCATE is read bit by bit; what is found out later is looked for where it began."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors.watch import Trouble
from headrace.control import emptied
from headrace.control.emptied import UNREAD, Emptied, held, in_doubt, judged, note_doubt
from headrace.control.registry import Registry, SinkEntry
from headrace.control.verdicts import State, Verdict, healed, made_anew, record, standing
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

TABLE = TableId("public", "parted")
SCHEMA = TableSchema(TABLE, (Column("id", LogicalType.INT32),), ("id",))
TOPIC = f"shop.{TABLE}"
EMPTIED = Trouble(TABLE, "PARTITION_EMPTIED", True, "its partition was emptied", unless=(70, 80))


class Topic:
    """A topic of one partition, also what reads it; it counts the records that were read."""

    def __init__(self, changes: int, *truncates: int) -> None:
        told = [b'{"op":"c"}'] * changes
        told += [
            json.dumps({"op": "t", "source": {"txId": by}}, separators=(",", ":")).encode()
            for by in truncates
        ]
        self.told, self.read = told, 0

    def ends(self, names: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {(name, 0): (0, len(self.told)) for name in names}

    def records(self, topic: str, partition: int, begin: int, end: int) -> Iterator[Any]:
        for offset, value in enumerate(self.told[begin:end], begin):
            self.read += 1
            yield SimpleNamespace(value=lambda value=value: value, offset=lambda offset=offset: offset)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "registry.db")
    with registry.begin() as session:
        session.add(source_entry("shop", [SCHEMA]))
    return registry


def two_sinks(registry: Registry) -> None:
    with registry.begin() as session:
        for name in ("one", "two"):
            fields: dict[str, Any] = {"settings": {}, "incomplete": {}, "incomplete_ms": {}, "created_ms": 1}
            session.add(SinkEntry(name=name, kind="memory", source="shop", tables={TOPIC: {}}, **fields))


def sight(*troubles: Trouble) -> Any:
    hold = SimpleNamespace(flushed=100, confirmed=100)
    return SimpleNamespace(troubles=troubles, hold=hold, parted=(TABLE,))


def look(registry: Registry, topic: Topic, before: Emptied, *troubles: Trouble) -> Emptied:
    """Do with emptied partitions what a look does; return what the next look gets."""
    entry, seen, kafka = registry.source("shop"), sight(*troubles), cast("Any", topic)
    ends = emptied.ends_now(kafka, before)
    doubts = in_doubt(registry, entry, before, seen)
    for trouble in troubles:
        if trouble.unless is not None and TOPIC in doubts:
            note_doubt(registry, entry, TOPIC, trouble)
        elif trouble.unless is not None:
            record(registry, entry, [TOPIC], trouble.code, Verdict(State.RESYNC_REQUIRED, trouble.reason))
    doubts = judged(registry, kafka, entry, before, doubts, seen)
    kept = json.dumps(held(entry, before, ends, doubts, seen).as_dict())
    return Emptied.of(json.loads(kept))


def record_of(op: str, transaction: int, lsn: int) -> bytes:
    told = {"op": op, "source": {"txId": transaction, "lsn": lsn}}
    return json.dumps(told, separators=(",", ":")).encode()


@pytest.mark.parametrize("first", ["row", "truncate"])
@pytest.mark.parametrize(
    ("truncate", "row", "lsn", "left"),
    [
        (75, 78, 9, ["resync_required"]),
        (75, 78, 3, []),
        (75, 90, 9, []),
        (75, 75, 9, []),
        (80, 79, 9, []),
    ],
    ids=["between", "before", "after", "the same transaction", "the last one"],
)
def test_a_truncate_that_rows_have_followed_is_not_what_removed_those(
    registry: Registry, truncate: int, row: int, lsn: int, left: list[str], first: str
) -> None:
    """Of a topic of several partitions the row may be read before."""
    topic = Topic(0)
    topic.told += [record_of("t", truncate, 5), record_of("c", row, lsn)][:: 1 if first == "truncate" else -1]
    before = look(registry, topic, Emptied(), EMPTIED)
    while before.doubts:
        before = look(registry, topic, before)
    assert [verdict.state for verdict in standing(registry, "shop")] == left


def test_what_is_seen_while_a_server_recovers_is_judged_when_the_log_is_known(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, at = Topic(1), [None, 100, 100]
    monkeypatch.setattr(
        "tests.unit.test_emptied.sight",
        lambda *troubles: SimpleNamespace(
            troubles=troubles, hold=SimpleNamespace(flushed=at[0], confirmed=60), parted=(TABLE,)
        ),
    )
    before = look(registry, topic, Emptied(), EMPTIED)
    at[0] = 100
    for _ in range(3):
        before = look(registry, topic, before)
    assert before.doubts[TOPIC].position == 100
    assert [verdict.state for verdict in standing(registry, "shop")] == ["catching_up"]


@pytest.mark.parametrize(("by", "left"), [(75, []), (90, ["resync_required"])])
def test_records_that_take_many_looks_are_read_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, by: int, left: list[str]
) -> None:
    """A look of minutes counts as one that hangs, and the next one would begin at the first of them."""
    monkeypatch.setattr(emptied, "_READS_S", 0.0)
    topic = Topic(50, by)
    before = look(registry, topic, Emptied(), EMPTIED)
    looks = 0
    while before.doubts:
        before = look(registry, topic, before)
        topic.told.append(b'{"op":"c"}')  # others go on writing
        looks += 1
        assert looks < 100
    assert topic.read == 51
    assert looks > 50
    assert [verdict.state for verdict in standing(registry, "shop")] == left


@pytest.mark.parametrize("told", [{}, {"told": [75]}, {"told": []}])
def test_what_an_older_version_has_kept_is_read(registry: Registry, told: dict[str, list[int]]) -> None:
    """A watcher that could not read it would look no more, and neither would any command."""
    doubt = {"since": [0], "position": 1, "by": [[70, 80]], "reason": "its partition was emptied", **told}
    record(registry, registry.source("shop"), [TOPIC], EMPTIED.code, Verdict(State.CATCHING_UP, "in doubt"))
    topic, before = Topic(0), Emptied.of({"ends": {TOPIC: [0]}, "doubts": {TOPIC: doubt}})
    topic.told += [record_of("c", 60, 900), *([] if told.get("told") else [record_of("t", 75, 950)])]
    assert not look(registry, topic, before).doubts
    assert standing(registry, "shop") == []


def test_a_second_partition_may_be_emptied_by_what_was_read_already(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emptied, "_READS_S", 0.0)
    topic = Topic(1, 75, 85)
    before = look(registry, topic, Emptied(), EMPTIED)
    before = look(registry, topic, look(registry, topic, before))
    assert topic.read == 2
    before = look(registry, topic, before, Trouble(TABLE, EMPTIED.code, True, "another", unless=(82, 88)))
    while before.doubts:
        before = look(registry, topic, before)
    assert standing(registry, "shop") == []


def test_a_row_that_looks_like_a_truncate_is_none(registry: Registry) -> None:
    """A column may be called as the record's own word, and a row that a snapshot reads has no transaction."""
    topic = Topic(0)
    rows: list[dict[str, Any]] = [
        {"op": "c", "source": {"txId": 75}, "after": {"op": "t"}},
        {"op": "r", "source": {"txId": None}, "after": {"op": "t"}},
    ]
    topic.told += [json.dumps(row, separators=(",", ":")).encode() for row in rows]
    before = look(registry, topic, Emptied(), EMPTIED)
    while before.doubts:
        before = look(registry, topic, before)
    assert [verdict.state for verdict in standing(registry, "shop")] == ["resync_required"]


def test_what_is_found_out_later_was_told_since_the_question_arose(registry: Registry) -> None:
    asking = Trouble(TABLE, UNREAD, False, "it is not known yet", lasts=True)
    topic = Topic(3)
    before = look(registry, topic, look(registry, topic, Emptied()))
    topic.told += Topic(0, 75).told
    for _ in range(3):
        before = look(registry, topic, before, asking)
    before = look(registry, topic, before, EMPTIED)
    assert not look(registry, topic, before).doubts
    assert standing(registry, "shop") == []


@pytest.mark.parametrize("by", [275, 90], ids=["told", "untold"])
def test_a_sink_that_was_healed_stays_so_when_the_whole_table_is_truncated(
    registry: Registry, by: int
) -> None:
    """What a run has still to mend at another sink, and at those that come later, stands meanwhile."""
    two_sinks(registry)
    topic = Topic(1)
    lost, again = ("", "resync_required"), replace(EMPTIED, unless=(270, 280))

    def stands() -> list[tuple[str, str]]:
        return sorted((found.sink, found.state) for found in standing(registry, "shop"))

    before = look(registry, topic, look(registry, topic, Emptied(), EMPTIED))
    before = look(registry, topic, before, again)
    assert (stands(), before.doubts) == ([lost], {}), "no sink is right"
    healed(registry, "shop", TOPIC, "one", 2**53)
    topic.told += Topic(0, by).told
    before = look(registry, topic, before, again, again)
    assert stands() == [lost, ("one", "catching_up"), ("two", "catching_up")]
    before = look(registry, topic, before)
    mine = [] if by == 275 else [("one", "resync_required"), ("two", "resync_required")]
    assert (stands(), before.doubts) == ([lost, *mine], {})
    assert made_anew(registry, "shop") == set(), "its target has the shape that it is to have"
    before = look(registry, topic, before, replace(EMPTIED, unless=(300, 300)))
    doubts = [("one", "catching_up"), ("two", "catching_up")]
    assert stands() == [lost, *(mine or doubts)], "what is wrong is not in doubt again"
    for name in ("one", "two"):
        healed(registry, "shop", TOPIC, name, 2**53)
    assert stands() == []


@pytest.mark.parametrize("sinks", [("one",), ("one", "two")])
def test_what_a_run_has_healed_meanwhile_is_not_wrong_again(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, sinks: tuple[str, ...]
) -> None:
    """It has read the table since; that may be while the topic is read."""
    two_sinks(registry)
    topic = Topic(1)
    before = look(registry, topic, Emptied(), EMPTIED)
    begun_ms = registry.moment("shop")
    read_on = emptied._read_on

    def meanwhile(*arguments: Any) -> Any:
        for name in sinks:
            healed(registry, "shop", TOPIC, name, begun_ms)
        return read_on(*arguments)

    monkeypatch.setattr(emptied, "_read_on", meanwhile)
    look(registry, topic, before)
    healed(registry, "shop", TOPIC, "two", begun_ms)
    assert not standing(registry, "shop")


def test_a_run_that_began_before_a_partition_was_emptied_heals_nothing_of_that(registry: Registry) -> None:
    """It may have read the rows; that another sink is right already is no matter of it."""
    two_sinks(registry)
    topic = Topic(1)
    before = look(registry, topic, look(registry, topic, Emptied(), EMPTIED))
    healed(registry, "shop", TOPIC, "one", 2**53)
    again = replace(EMPTIED, unless=(270, 280))
    begun_ms = registry.moment("shop")
    before = look(registry, topic, before, again)
    healed(registry, "shop", TOPIC, "two", begun_ms)
    look(registry, topic, before)  # nothing told of a TRUNCATE
    lost = {("", "resync_required"), ("one", "resync_required"), ("two", "resync_required")}
    assert {(found.sink, found.state) for found in standing(registry, "shop")} == lost
    # One that stands by itself is as young as what was seen last.
    healed(registry, "shop", TOPIC, "one", 2**53)
    begun_ms = registry.moment("shop")
    look(registry, topic, before, replace(EMPTIED, unless=(290, 295)))
    healed(registry, "shop", TOPIC, "two", begun_ms)
    assert ("two", "resync_required") in {(found.sink, found.state) for found in standing(registry, "shop")}
