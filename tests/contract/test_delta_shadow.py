"""What lies where a table that was built anew is to serve: kept, and not overwritten when it is another's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.model.errors import SinkError
from sinks.contract.story import ORDERS
from tests.support.lake_story import rebuild, told


@pytest.mark.parametrize("by", [(), ("id",)], ids=["plain", "one that the sink cannot write to"])
def test_a_shadow_takes_the_place_of_no_table_of_others(tmp_path: Path, by: tuple[str, ...]) -> None:
    story = told(False, tmp_path)
    shutil.rmtree(story.path)
    theirs = pa.table({"id": pa.array([77], pa.int64()), "v": pa.array(["theirs"])})
    write_deltalake(story.path, theirs, partition_by=list(by))
    with pytest.raises(SinkError) as caught:
        rebuild(story)
    assert (caught.value.code, caught.value.table) == ("DELTA_PATH_TAKEN", ORDERS.table)
    assert DeltaTable(story.path).to_pyarrow_table().to_pylist() == theirs.to_pylist()


def test_what_a_shadow_takes_the_place_of_is_kept(tmp_path: Path) -> None:
    """Nobody can read it; what it was a person may find out."""
    story = told(False, tmp_path)
    shutil.rmtree(story.path)
    Path(story.path).mkdir()
    (Path(story.path) / "a").write_text("of somebody")
    rebuild(story)
    (kept,) = tmp_path.rglob("_headrace/lost/*/a")
    assert kept.read_text() == "of somebody"


@pytest.mark.parametrize("kind", ["a table", "a folder"])
def test_what_others_have_put_where_a_table_was_is_not_dropped(tmp_path: Path, kind: str) -> None:
    """As by `sink remove --purge`, after the sink has said that the path is taken."""
    story = told(False, tmp_path)
    shutil.rmtree(story.path)
    if kind == "a table":
        write_deltalake(story.path, pa.table({"id": pa.array([77], pa.int64())}))
    else:
        Path(story.path).mkdir()
        (Path(story.path) / "a").write_text("of somebody")
    there = sorted(path.name for path in Path(story.path).rglob("*"))
    story.sink.drop(ORDERS)
    assert sorted(path.name for path in Path(story.path).rglob("*")) == there
    assert not list(tmp_path.rglob("*.tombstones"))
