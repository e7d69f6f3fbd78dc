"""A verdict stands until a run that began after it was last seen has made the table right at each sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control.registry import Registry, SinkEntry, now_ms
from headrace.control.runs.passed import swept_at
from headrace.control.runs.repository import Phase, change, end, insert
from headrace.control.runs.wishes import go_on
from headrace.control.sink_remove import unregister
from headrace.control.verdicts import (
    RETYPED,
    State,
    Verdict,
    follow_types,
    forget_target,
    healed,
    lacking_later,
    over,
    record,
    reword,
    standing,
    told_again,
)
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

TOPIC = "shop.public.t"
WRONG = Verdict(State.RESYNC_REQUIRED, "the type of v has changed", "headrace resnapshot shop public.t")
LATER = 2**53


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "registry.db")
    schema = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32),), ("id",))
    source = source_entry("shop", [schema])
    sinks = [
        SinkEntry(
            name=name,
            kind="memory",
            source="shop",
            settings={},
            tables={TOPIC: {}},
            incomplete={},
            on_schema_change="lenient",
            created_ms=1,
        )
        for name in ("cache", "search")
    ]
    with registry.begin() as session:
        session.add(source)
        session.flush()
        session.add_all(sinks)
    return registry


def test_a_verdict_is_news_once_and_keeps_its_beginning(registry: Registry) -> None:
    assert record(registry, registry.source("shop"), [TOPIC], "TYPE", WRONG) == [TOPIC]
    (first,) = standing(registry, "shop")
    assert record(registry, registry.source("shop"), [TOPIC], "TYPE", WRONG) == []
    (again,) = standing(registry, "shop")
    assert again.first_ms == first.first_ms
    assert again.last_ms >= first.last_ms
    assert [line.event for line in registry.journal("source shop")] == ["verdict"]


def test_only_a_run_that_began_later_heals_and_only_where_it_swept(registry: Registry) -> None:
    record(registry, registry.source("shop"), [TOPIC], "TYPE", WRONG)
    (found,) = standing(registry, "shop")
    healed(registry, "shop", TOPIC, "cache", found.last_ms)
    assert not standing(registry, "shop")[0].healed
    healed(registry, "shop", TOPIC, "cache", LATER)
    assert standing(registry, "shop")[0].healed == {"cache": LATER}
    healed(registry, "shop", TOPIC, "search", LATER)
    assert not standing(registry, "shop")


def test_what_is_seen_again_is_healed_by_no_earlier_run(registry: Registry) -> None:
    record(registry, registry.source("shop"), [TOPIC], "TYPE", WRONG)
    healed(registry, "shop", TOPIC, "cache", LATER)
    record(registry, registry.source("shop"), [TOPIC], "TYPE", WRONG)
    assert not standing(registry, "shop")[0].healed


def test_a_clock_that_is_set_back_heals_nothing_that_is_found_after_a_run_has_begun(
    registry: Registry,
) -> None:
    """A run that began by a clock that was ahead, and a look after it was put right."""
    ahead = now_ms() + 3_600_000
    run = insert(registry, "shop", [TOPIC], ["cache", "search"], queue=False, why="")
    change(registry, run.id, begun_ms=ahead)
    record(registry, registry.source("shop"), [TOPIC], "TYPE", WRONG)
    registry.incomplete("cache", {TOPIC: 7})
    healed(registry, "shop", TOPIC, "cache", ahead)
    registry.completed("cache", TOPIC, ahead)
    assert [found.healed for found in standing(registry, "shop")] == [{}]
    assert registry.sink("cache").incomplete == {TOPIC: 7}
    # One that begins after the look heals it, by the same clock.
    later = change(registry, run.id, begun_ms=registry.moment("shop")).begun_ms
    healed(registry, "shop", TOPIC, "cache", later)
    healed(registry, "shop", TOPIC, "search", later)
    registry.completed("cache", TOPIC, later)
    assert not standing(registry, "shop")
    assert registry.sink("cache").incomplete == {}


def test_a_verdict_on_one_sink_goes_with_that_sink_s_run(registry: Registry) -> None:
    record(registry, registry.source("shop"), [TOPIC], "GONE", WRONG, sink="cache")
    healed(registry, "shop", TOPIC, "search", LATER)
    assert standing(registry, "shop")
    healed(registry, "shop", TOPIC, "cache", LATER)
    assert not standing(registry, "shop")


def test_what_left_nothing_wrong_behind_is_simply_over(registry: Registry) -> None:
    record(registry, registry.source("shop"), [TOPIC], "GONE", WRONG)
    over(registry, "shop", TOPIC, "GONE")
    assert not standing(registry, "shop")


def test_a_verdict_that_is_over_is_not_brought_back_by_other_words(registry: Registry) -> None:
    record(registry, registry.source("shop"), [TOPIC], "TYPE", WRONG)
    milder = Verdict(State.DEGRADED, "it is being looked at")
    reword(registry, "shop", TOPIC, "TYPE", milder)
    (found,) = standing(registry, "shop")
    assert (found.state, found.reason) == ("degraded", "it is being looked at")
    over(registry, "shop", TOPIC, "TYPE")
    reword(registry, "shop", TOPIC, "TYPE", milder)
    assert not standing(registry, "shop")


def test_sinks_that_follow_a_type_one_by_one_are_healed_one_by_one(registry: Registry) -> None:
    source = registry.source("shop")
    record(registry, source, [TOPIC], RETYPED, WRONG)
    healed(registry, "shop", TOPIC, "cache", LATER)  # by the old type
    assert [found.sink for found in standing(registry, "shop")] == [""]
    follow_types(registry, "shop", {"cache": [TOPIC], "search": []}, LATER)
    healed(registry, "shop", TOPIC, "cache", LATER)
    healed(registry, "shop", TOPIC, "search", LATER)
    assert [(found.sink, found.code) for found in standing(registry, "shop")] == [("search", RETYPED)]
    follow_types(registry, "shop", {"cache": [TOPIC], "search": [TOPIC]}, LATER)
    assert [found.sink for found in standing(registry, "shop")] == ["search"]
    healed(registry, "shop", TOPIC, "search", LATER)
    assert not standing(registry, "shop")


def test_what_namesakes_have_made_of_values_is_not_healed_before_the_connector_starts_without_them(
    registry: Registry,
) -> None:
    record(registry, registry.source("shop"), [TOPIC], "TYPE_NAMESAKE", WRONG)
    healed(registry, "shop", TOPIC, "cache", LATER)  # the connector mixes them up still
    healed(registry, "shop", TOPIC, "search", LATER)
    assert [found.code for found in standing(registry, "shop")] == ["TYPE_NAMESAKE"]
    follow_types(registry, "shop", {"cache": [TOPIC], "search": [TOPIC]}, LATER)
    healed(registry, "shop", TOPIC, "cache", LATER)
    healed(registry, "shop", TOPIC, "search", LATER)
    assert not standing(registry, "shop")


def test_a_type_that_changes_once_more_is_followed_by_nobody_yet(registry: Registry) -> None:
    source = registry.source("shop")
    seen_ms = registry.moment("shop")
    record(registry, source, [TOPIC], RETYPED, WRONG)
    follow_types(registry, "shop", {"cache": [TOPIC], "search": [TOPIC]}, seen_ms)
    assert [(found.sink, found.code) for found in standing(registry, "shop")] == [("", RETYPED)]


def sink(registry: Registry, name: str) -> None:
    """Register another sink of the table."""
    with registry.begin() as session:
        told = {"kind": "memory", "source": "shop", "settings": {}, "tables": {TOPIC: {}}, "incomplete": {}}
        session.add(SinkEntry(name=name, **told, on_schema_change="lenient", created_ms=now_ms() + 10))


def told_of(registry: Registry) -> set[str]:
    """Return the sinks that are told what rows of before lack."""
    names = {entry.name for entry in registry.sinks("shop")}
    return {name for found in standing(registry, "shop") for name in names - found.healed.keys()}


def test_what_rows_of_before_lack_is_told_of_sinks_that_come_until_a_run_has_read_them(
    registry: Registry,
) -> None:
    source = registry.source("shop")
    lacking_later(registry, source, TOPIC, WRONG)
    assert told_of(registry) == set()
    sink(registry, "late")
    assert told_of(registry) == {"late"}
    lacking_later(registry, source, TOPIC, WRONG)  # another column; what the first one brought it lacks still
    assert told_of(registry) == {"late"}
    unregister(registry, "cache")
    sink(registry, "cache")
    assert told_of(registry) == {"cache", "late"}
    told_again(registry, "shop", TOPIC, 1)  # a run of before
    assert told_of(registry) == {"cache", "late"}
    told_again(registry, "shop", TOPIC, registry.moment("shop") + 1)
    assert not standing(registry, "shop")


def test_a_run_that_failed_before_it_swept_has_swept_no_later_sink(registry: Registry) -> None:
    table = registry.source("shop").tables
    run = insert(registry, "shop", [TOPIC], ["cache"], queue=False, why="")
    change(registry, run.id, {"marks": {TOPIC: [5]}, "ends": {TOPIC: [9]}}, phase=Phase.APPLYING)
    end(registry, run.id, Phase.FAILED)
    sink(registry, "late")
    assert swept_at(registry, registry.sink("late"), table) == {}
    change(registry, run.id, counts={"swept": {"cache": {"public.t": 0}}})
    found = swept_at(registry, registry.sink("late"), table)
    assert {topic: told.marks for topic, told in found.items()} == {TOPIC: (5,)}


def test_marks_by_which_a_sink_was_swept_outlast_a_run_that_goes_on_once_more(registry: Registry) -> None:
    table = registry.source("shop").tables
    run = insert(registry, "shop", [TOPIC], ["cache"], queue=False, why="")
    plan = {"marks": {TOPIC: [5]}, "ends": {TOPIC: 9}}
    change(registry, run.id, plan, phase=Phase.APPLYING, counts={"swept": {"cache": {"public.t": 0}}})
    end(registry, run.id, Phase.FAILED)
    go_on(registry, run.id, sweep_many=False)

    def marks(name: str) -> dict[str, tuple[int, ...]]:
        told = swept_at(registry, registry.sink(name), table)
        return {topic: one.marks for topic, one in told.items()}

    assert (marks("cache"), marks("search")) == ({TOPIC: (5,)}, {})
    # What it reads next passes over rows: nobody is swept by those marks, nor is a sink that comes later.
    change(registry, run.id, {"marks": {TOPIC: [20]}, "ends": {TOPIC: [30]}}, counts={})
    end(registry, run.id, Phase.FAILED)
    sink(registry, "late")
    assert (marks("cache"), marks("late")) == ({TOPIC: (5,)}, {TOPIC: (5,)})


def test_what_is_wrong_with_a_sink_goes_with_it_and_what_is_wrong_with_its_rows_with_them(
    registry: Registry,
) -> None:
    source = registry.source("shop")
    for code in ("COLUMN_FOLLOWED", "TYPE_NAMESAKE", "RECOVERY_LEFT_OUT"):
        for name in ("cache", "search"):
            record(registry, source, [TOPIC], code, WRONG, sink=name)
    unregister(registry, "cache")
    mine = [found.code for found in standing(registry, "shop") if found.sink == "cache"]
    assert mine == ["RECOVERY_LEFT_OUT"], "one that is added again finds those rows"
    forget_target(registry, "shop", TOPIC, "cache")
    assert {found.sink for found in standing(registry, "shop")} == {"search"}
    assert len(standing(registry, "shop")) == 3
