"""Columns that a table of the lake has lost again: no value goes with them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.model.outcome import APPLIED
from headrace.model.schema import Column, LogicalType
from sinks.contract.story import ORDERS, at, expected, order, state, upsert
from sinks.delta import DeltaSink
from tests.support.lake_story import TOPIC, told

WIDE = replace(ORDERS, columns=(*ORDERS.columns, Column("colour", LogicalType.TEXT)))
ROW = {"id": 30, "item": "jug", "price": "1", "note": None}


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("how", ["RESTORE", "backup"])
def test_a_column_that_goes_with_a_restore_is_there_again_before_its_first_value(
    tmp_path: Path, how: str, restarted: bool
) -> None:
    """Every row is still there, so nothing is applied again, and nobody prepares the table."""
    story = told(False, tmp_path / "lake")
    before = DeltaTable(story.path).version()
    shutil.copytree(story.path, tmp_path / "copy")
    story.sink.prepare(WIDE)
    if how == "RESTORE":
        DeltaTable(story.path).restore(before)
    else:
        shutil.rmtree(story.path)
        shutil.copytree(tmp_path / "copy", story.path)
    assert "colour" not in DeltaTable(story.path).schema().to_json()
    if restarted:
        story.restart()
    assert story.stored == 23
    new = upsert(WIDE, {**ROW, "colour": "red"}, at(24))
    assert story.sink.apply(WIDE, [new]) == [APPLIED]
    part = upsert(
        WIDE, {"id": 5, "item": "cup", "price": "2", "note": None, "colour": "blue"}, at(25), ["item"]
    )
    assert story.sink.apply(WIDE, [part]) == [APPLIED]
    story.sink.settle({(TOPIC, 0): 25})
    assert story.stored == 25
    found = {row["id"]: row["colour"] for row in DeltaTable(story.path).to_pyarrow_table().to_pylist()}
    assert (found[30], found[5], found[6]) == ("red", "blue", None)


def test_what_is_kept_beside_a_row_is_not_lost_with_its_column(tmp_path: Path) -> None:
    days = replace(ORDERS, columns=(*ORDERS.columns, Column("day", LogicalType.DATE)))
    plain = DeltaSink("lake", DeltaSink.Config(path=tmp_path))
    plain.prepare(days)
    plain.apply(days, [upsert(days, {**ROW, "day": 1}, at(1))])
    plain.settle({(TOPIC, 0): 1})
    delta = DeltaTable(str(tmp_path / "public" / "orders"))
    before = delta.version()
    keeping = DeltaSink("lake", DeltaSink.Config.model_validate({"path": tmp_path, "unheld": "null"}))
    keeping.prepare(days)
    DeltaTable(delta.table_uri).restore(before)
    assert dict(keeping.progress()) == {(TOPIC, 0): 1}
    never = upsert(days, {**ROW, "day": "infinity"}, at(2))
    assert keeping.apply(days, [never]) == [APPLIED]
    assert state(keeping, days) == expected(days, [never])


def test_a_table_with_more_columns_than_are_mirrored_keeps_them(tmp_path: Path) -> None:
    story = told(False, tmp_path)
    story.sink.prepare(WIDE)
    story.batch(order(31, at(24)))
    story.is_whole()
    assert "colour" in DeltaTable(story.path).schema().to_json()
