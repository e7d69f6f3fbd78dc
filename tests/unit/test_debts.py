"""What a follower owes its sinks: kept in a file, until a run has read it or a person decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control.context import Context
from headrace.control.debts import Debts, forget
from headrace.control.registry import ResnapshotEntry, SourceEntry
from headrace.control.runs.repository import Phase, change, insert, leave_behind
from headrace.control.verdicts import standing
from headrace.model.schema import TableId
from tests.unit.test_run_sweeping import A, B, Shop, topics

TABLE = TableId("public", "a")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    change(made.registry, made.job.name, phase=Phase.COMPLETED)
    return made


@pytest.fixture
def debts(shop: Shop) -> Debts:
    return Debts(shop.context, shop.registry, "shop")


def begin(shop: Shop, *mine: str, sinks: tuple[str, ...] = ("one", "two")) -> ResnapshotEntry:
    return insert(shop.registry, "shop", mine, sinks, queue=True, why="")


def left(debts: Debts) -> dict[tuple[str, str], str]:
    """Return sink and table → phase of the run that reads it; empty when there is none."""
    found = debts.settle()
    return {(debt.sink, debt.table.name): run.phase if run is not None else "" for debt, run in found}


def file_of(context: Context) -> Path:
    return context.run / "follow-shop.json"


def test_what_is_owed_is_left_until_a_run_of_later_reads_it_for_the_sink(shop: Shop, debts: Debts) -> None:
    begin(shop, *topics)  # before: what it reads lacks the change
    debts.owe("one", [TABLE])
    debts.owe("two", [TABLE])
    assert left(debts) == {("one", "a"): "", ("two", "a"): ""}
    begin(shop, B)
    run = begin(shop, A, B, sinks=("one",))
    assert left(debts) == {("one", "a"): "queued", ("two", "a"): ""}
    change(shop.registry, run.id, phase=Phase.COMPLETED)
    assert left(debts) == {("two", "a"): ""}
    change(shop.registry, begin(shop, A).id, phase=Phase.COMPLETED)
    assert left(debts) == {}
    assert not file_of(shop.context).exists()


@pytest.mark.parametrize(
    ("phase", "over"),
    [(Phase.ABORTED, True), (Phase.FAILED, True), (Phase.UNFINISHED, True), (Phase.READING, False)],
)
def test_after_a_run_that_was_broken_off_or_asks_a_person_decides(
    shop: Shop, debts: Debts, phase: Phase, over: bool
) -> None:
    debts.owe("one", [TABLE])
    change(shop.registry, begin(shop, A).id, phase=phase)
    assert (left(debts) == {}) is over
    told = {
        (v.topic, v.sink, v.remedy) for v in standing(shop.registry, "shop") if v.code == "COLUMNS_UNREAD"
    }
    broken_off = phase in (Phase.ABORTED, Phase.FAILED)
    assert told == ({(A, "one", "headrace resnapshot shop public.a")} if broken_off else set())


def test_a_table_that_has_failed_beside_others_is_owed_still(shop: Shop, debts: Debts) -> None:
    debts.owe("one", [TABLE])
    change(shop.registry, begin(shop, A, B).id, phase=Phase.FAILED)
    assert left(debts) == {("one", "a"): "failed"}
    change(shop.registry, begin(shop, A).id, phase=Phase.FAILED)
    assert left(debts) == {}


def test_what_is_owed_since_a_recovery_has_begun_to_read_is_owed_still(shop: Shop, debts: Debts) -> None:
    debts.owe("one", [TABLE])
    reading_ms = shop.registry.moment("shop")
    debts.owe("two", [TABLE])
    debts.forget_before(reading_ms)
    assert left(debts) == {("two", "a"): ""}


def test_what_is_found_lacking_after_the_run_has_begun_is_owed_still(shop: Shop, debts: Debts) -> None:
    debts.owe("one", [TABLE])
    run = begin(shop, A)
    shop.registry.incomplete("one", {A: 7})
    change(shop.registry, run.id, phase=Phase.COMPLETED)
    assert left(debts) == {("one", "a"): ""}


def test_a_table_that_is_taken_out_and_a_sink_that_is_gone_are_owed_nothing(shop: Shop, debts: Debts) -> None:
    debts.owe("one", [TABLE, TableId("public", "b")])
    debts.owe("gone", [TABLE])
    with shop.registry.begin() as session:
        source = session.get_one(SourceEntry, "shop")
        source.tables.remove(next(table for table in source.tables if table.topic == A))
    assert left(debts) == {("one", "b"): ""}


def test_a_recovery_pays_all(shop: Shop, debts: Debts) -> None:
    debts.owe("one", [TABLE])
    change(shop.registry, begin(shop, A).id, phase=Phase.FAILED)
    with shop.registry.begin() as session:
        leave_behind(session, "shop")
    assert left(debts) == {}
    debts.owe("one", [TABLE])
    forget(shop.context, "shop")
    assert left(debts) == {}


@pytest.mark.parametrize("told", ["", "null", "{}", '{"debts": [["one"', '[["public", "a"]]'])
def test_what_a_damaged_file_has_told_is_settled_by_reading_everything(
    shop: Shop, debts: Debts, told: str
) -> None:
    file_of(shop.context).parent.mkdir(exist_ok=True)
    file_of(shop.context).write_text(told)
    assert left(debts) == {(sink, table): "" for sink in ("one", "two") for table in ("a", "b", "c")}
    change(shop.registry, begin(shop, *topics).id, phase=Phase.COMPLETED)
    assert left(debts) == {}
