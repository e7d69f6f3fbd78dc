"""Other writers of a lake's tables: survived when they leave rows as they are, noticed when they do not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.model.errors import SinkError
from headrace.model.outcome import APPLIED
from sinks.contract.story import ORDERS, at, expected, order, state
from tests.support.lake_story import TOPIC, Story, rebuild, told

BOTH = pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "hiding"])


@BOTH
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("back", [1, 2, 3])
def test_what_came_after_a_restore_is_brought_forward(
    tmp_path: Path, vectors: bool, restarted: bool, back: int
) -> None:
    story = told(vectors, tmp_path)
    delta = DeltaTable(story.path)
    delta.restore(delta.version() - back)
    if restarted:
        story.restart()
    # Nothing may be applied before the engine has looked.
    with pytest.raises(SinkError) as caught:
        story.sink.apply(ORDERS, [order(40, at(99))])
    assert caught.value.code == "DELTA_WENT_BACK"
    assert story.stored == {1: 21, 2: 19, 3: -1}[back]
    story.bring_forward()
    story.is_whole()
    assert story.stored == 23
    story.batch(order(2, at(24)), order(50, at(25)))
    story.is_whole()
    story.restart()
    assert story.stored == 25


def test_a_restore_noticed_twice_is_brought_forward_from_the_start_of_both(tmp_path: Path) -> None:
    story = told(False, tmp_path)
    delta = DeltaTable(story.path)
    delta.restore(delta.version() - 2)
    delta.restore(delta.version() - 2)
    assert story.stored == 19
    story.restart()
    assert story.stored == 19
    story.bring_forward()
    story.is_whole()


def _update(delta: DeltaTable) -> None:
    delta.update({"item": "'theirs'"}, predicate="id = 5")


def _delete(delta: DeltaTable) -> None:
    delta.delete("id = 5")


def _append(delta: DeltaTable) -> None:
    write_deltalake(delta, pa.table({"id": pa.array([77], pa.int64())}), mode="append", schema_mode="merge")


def _overwrite(delta: DeltaTable) -> None:
    rows = pa.table(delta.scan())
    write_deltalake(delta, rows.slice(0, 3), mode="overwrite")


def _merge(delta: DeltaTable) -> None:
    rows = pa.table(delta.scan()).slice(0, 1)
    delta.merge(rows, "t.id = s.id", source_alias="s", target_alias="t").when_matched_delete().execute()


CHANGES: list[Callable[[DeltaTable], None]] = [_update, _delete, _append, _overwrite, _merge]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_rows_changed_by_others_are_noticed_until_the_table_is_built_anew(
    tmp_path: Path, change: Callable[[DeltaTable], None], restarted: bool
) -> None:
    story = told(False, tmp_path)
    change(DeltaTable(story.path))
    after = DeltaTable(story.path).version()
    if restarted:
        story.restart()
    for _ in range(2):
        assert story.stored == -1  # nothing of it is to be believed
        for attempt in (
            lambda: story.sink.apply(ORDERS, [order(1, at(99))]),
            lambda: story.sink.prepare(ORDERS),
        ):
            with pytest.raises(SinkError) as caught:
                attempt()
            assert caught.value.code == "DELTA_FOREIGN_COMMIT"
            assert caught.value.table == ORDERS.table
            assert f"version {after}" in caught.value.message
            assert caught.value.hint == "headrace resnapshot SOURCE public.orders"
        story.restart()
    assert DeltaTable(story.path).version() == after

    rebuild(story)
    story.is_whole()
    assert story.stored == 23
    story.batch(order(2, at(24)), order(50, at(25)))
    story.is_whole()


@BOTH
def test_what_leaves_rows_as_they_are_is_survived(tmp_path: Path, vectors: bool) -> None:
    story = told(vectors, tmp_path)
    for restarted in (False, True):
        delta = DeltaTable(story.path)
        if not vectors:
            delta.optimize.compact()
        delta.vacuum(dry_run=False)
        delta.alter.set_table_description(f"the orders {restarted}")
        if restarted:
            story.restart()
        assert story.stored == story.offset() - 1
        story.batch(order(1, at(100 + story.offset())), order(60 + story.offset(), at(200 + story.offset())))
        story.is_whole()
        assert not story.sink.maintain(60)
        assert story.stored == story.offset() - 1
        story.is_whole()


def test_our_own_upkeep_changes_no_data_as_a_streaming_reader_sees_it(tmp_path: Path) -> None:
    story = told(False, tmp_path)
    for n in range(70, 74):
        story.batch(order(n, at(n)))
    before = DeltaTable(story.path).version()
    assert not story.sink.maintain(60)
    log = Path(story.path) / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{before + 1:020d}.json").read_text().splitlines()]
    assert {a[kind]["dataChange"] for a in actions for kind in ("add", "remove") if kind in a} == {False}


def test_a_commit_that_another_writer_has_renamed_its_own_over_is_not_settled(tmp_path: Path) -> None:
    story = told(False, tmp_path)
    story.sink.apply(ORDERS, [order(80, at(80))])
    newest = max((Path(story.path) / "_delta_log").glob("*.json"))
    theirs = newest.with_name("theirs")
    theirs.write_text('{"commitInfo": {"operation": "OPTIMIZE"}}\n')
    theirs.rename(newest)
    with pytest.raises(SinkError) as caught:
        story.sink.settle({(TOPIC, 0): 80})
    assert caught.value.code == "DELTA_CONFLICT"
    assert story.stored == 23


def test_a_strangers_rows_go_with_a_sweep(tmp_path: Path) -> None:
    story = told(False, tmp_path)
    _append(DeltaTable(story.path))
    DeltaTable(story.path).optimize.compact()
    story.sink.forget([TOPIC])  # as if the table had been taken over with their rows in it
    story.restart()
    assert story.sink.apply(ORDERS, [order(1, at(500))]) == [APPLIED]
    assert story.sink.count(ORDERS, at(400)) == 20
    assert story.sink.truncate(ORDERS, at(400)) == 20
    assert state(story.sink, ORDERS) == expected(ORDERS, [order(1, at(500))])
    assert DeltaTable(story.path).count() == 1


@pytest.mark.parametrize("change", CHANGES)
def test_a_new_life_replaces_whatever_others_have_done_to_rows(
    tmp_path: Path, change: Callable[[DeltaTable], None]
) -> None:
    """What a recovery does: progress is forgotten, every row comes in a later epoch, the others go."""
    story = told(False, tmp_path)
    change(DeltaTable(story.path))
    story.restart()
    story.sink.forget([TOPIC])
    story.restart()
    story.sink.prepare(ORDERS)
    anew = [order(n, at(n, epoch=1)) for n in range(4, 24)]
    assert story.sink.apply(ORDERS, anew) == [APPLIED] * len(anew)
    story.sink.truncate(ORDERS, at(0, epoch=1))
    assert state(story.sink, ORDERS) == expected(ORDERS, anew)
    assert DeltaTable(story.path).count() == len(anew)


def _made_later(delta: DeltaTable, first: int) -> datetime:
    """Let the commits from a version on be ten minutes apart; return a time between the first two of them."""
    begun = round(datetime.now(timezone.utc).timestamp())
    for number in range(first, delta.version() + 1):
        commit = Path(delta.table_uri.removeprefix("file://")) / "_delta_log" / f"{number:020d}.json"
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        made = begun + 600 * (number - first + 1)
        next(one["commitInfo"] for one in actions if "commitInfo" in one)["timestamp"] = made * 1000
        commit.write_text("".join(json.dumps(one) + "\n" for one in actions))
        os.utime(commit, (made, made))
    return datetime.fromtimestamp(begun + 900, timezone.utc)


def _as_by_spark(delta: DeltaTable) -> None:
    """Let the newest commit, a RESTORE to a time, say that as Spark does: in a zone that it does not name."""
    newest = Path(delta.table_uri.removeprefix("file://")) / "_delta_log" / f"{delta.version():020d}.json"
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    info = next(one["commitInfo"] for one in actions if "commitInfo" in one)
    assert info["operation"] == "RESTORE"
    info["operationParameters"] = {"version": None, "timestamp": "2024-02-29 23:59:59.0"}
    newest.write_text("".join(json.dumps(one) + "\n" for one in actions))


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize(
    ("seen", "by_time"),
    [(0, ""), (1, ""), (2, ""), (0, "library"), (0, "Spark")],
    ids=["at last", "once undone", "at each step", "by time", "by Spark's time"],
)
def test_a_change_of_others_that_was_undone_and_is_brought_back_is_noticed(
    tmp_path: Path, restarted: bool, seen: int, by_time: str
) -> None:
    story = told(False, tmp_path)
    delta = DeltaTable(story.path)
    before = delta.version()
    _update(delta)
    if seen == 2:
        assert story.stored == -1
    delta.restore(before)
    if seen:
        assert story.stored == 23
        story.batch(order(51, at(24)))
        delta = DeltaTable(story.path)
    delta.restore(_made_later(delta, before + 1) if by_time else before + 1)
    if by_time == "Spark":
        _as_by_spark(delta)
    assert "theirs" in pa.table(delta.scan())["item"].to_pylist()
    if restarted:
        story.restart()
    assert story.stored == -1
    with pytest.raises(SinkError) as caught:
        story.sink.prepare(ORDERS)
    assert caught.value.code == "DELTA_FOREIGN_COMMIT"
    assert f"version {before + 1}" in caught.value.message
    rebuild(story)
    # What was before the table was built anew is explained by nothing; what came after is.
    story.batch(order(52, at(30)), order(53, at(31)))
    delta = DeltaTable(story.path)
    delta.restore(delta.version() - 1)
    assert story.stored >= 0
    story.bring_forward()
    story.is_whole()


@BOTH
@pytest.mark.parametrize("by_spark", [False, True], ids=["library", "Spark"])
def test_a_restore_to_a_time_before_others_changed_rows_undoes_that(
    tmp_path: Path, vectors: bool, by_spark: bool
) -> None:
    story = told(vectors, tmp_path)
    delta = DeltaTable(story.path)
    _update(delta)
    delta.restore(_made_later(delta, delta.version()) - timedelta(minutes=10))
    if by_spark:
        _as_by_spark(delta)
    assert "theirs" not in pa.table(delta.scan())["item"].to_pylist()
    story.restart()
    story.bring_forward()
    story.sink.prepare(ORDERS)
    story.is_whole()


def test_a_table_that_others_tidy_very_often_and_whose_old_log_they_remove_is_what_it_was(
    tmp_path: Path,
) -> None:
    story = told(False, tmp_path)
    settled = DeltaTable(story.path).version()

    def tidy(times: int) -> None:
        for number in range(times):
            DeltaTable(story.path).alter.set_table_description(f"{number}")
        delta = DeltaTable(story.path)
        delta.create_checkpoint()
        for commit in (Path(story.path) / "_delta_log").glob("*.json"):
            if int(commit.stem) < delta.version() - 10:
                commit.unlink()

    for turn in range(6):
        tidy(9 if turn else 1)
        assert story.stored == 23
        assert not story.sink.maintain(60)
        if turn == 4:
            story.sink.prepare(ORDERS)
    tidy(0)
    assert DeltaTable(story.path).version() > settled + 40
    story.batch(order(50, at(24)))
    for _ in range(7):
        tidy(9)
        assert story.stored == 24
        assert not story.sink.maintain(60)
    story.restart()
    assert story.stored == 24
    story.batch(order(50, at(25)), order(61, at(26)))
    story.is_whole()


def test_a_table_that_others_tidy_now_and_then_and_whose_old_log_they_remove_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.delta.standing._NOTED_S", 0.0, raising=False)
    story = told(False, tmp_path)
    for _ in range(3):
        DeltaTable(story.path).alter.set_table_description("theirs")
        assert story.stored == 23
    assert not story.sink.maintain(60)
    delta = DeltaTable(story.path)
    delta.create_checkpoint()
    for commit in (Path(story.path) / "_delta_log").glob("*.json"):
        if int(commit.stem) < delta.version():
            commit.unlink()
    story.restart()
    assert story.stored == 23
    story.batch(order(50, at(24)))
    story.is_whole()


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_rows_that_others_write_to_a_table_before_its_first_row_are_noticed_with_it(
    tmp_path: Path, restarted: bool
) -> None:
    story = Story(tmp_path)
    DeltaTable(story.path).alter.set_table_description("theirs")
    _append(DeltaTable(story.path))
    if restarted:
        story.restart()
    for _ in range(2):
        with pytest.raises(SinkError) as caught:
            story.sink.apply(ORDERS, [order(1, at(0))])
        assert caught.value.code == "DELTA_FOREIGN_COMMIT"
        assert caught.value.table == ORDERS.table
        assert "version 2" in caught.value.message
        story.restart()
    story.changes.append(order(1, at(0)))
    rebuild(story)
    story.is_whole()
    story.restart()
    story.batch(order(2, at(1)))
    story.is_whole()


def test_rows_of_others_that_are_gone_again_before_the_first_row_do_no_harm(tmp_path: Path) -> None:
    story = Story(tmp_path)
    _append(DeltaTable(story.path))
    DeltaTable(story.path).delete()
    story.restart()
    story.batch(order(1, at(0)))
    story.is_whole()


def test_rows_of_others_in_a_table_without_ours_go_with_a_sweep(tmp_path: Path) -> None:
    """What `sink add` does with a table that an earlier sink has left."""
    story = Story(tmp_path)
    _append(DeltaTable(story.path))
    story.restart()
    story.sink.prepare(ORDERS)
    assert story.sink.truncate(ORDERS, at(0, epoch=1)) == 1
    assert story.sink.apply(ORDERS, [order(1, at(0, epoch=1))]) == [APPLIED]
    assert state(story.sink, ORDERS) == expected(ORDERS, [order(1, at(0, epoch=1))])


def test_a_table_that_others_put_where_ours_had_no_row_yet_is_not_written_to(tmp_path: Path) -> None:
    story = Story(tmp_path)
    shutil.rmtree(story.path)
    write_deltalake(story.path, pa.table({"id": pa.array([77], pa.int64())}))
    story.restart()
    with pytest.raises(SinkError) as caught:
        story.sink.apply(ORDERS, [order(1, at(0))])
    assert caught.value.code == "DELTA_PATH_TAKEN"
    assert caught.value.table == ORDERS.table
    assert DeltaTable(story.path).version() == 0
