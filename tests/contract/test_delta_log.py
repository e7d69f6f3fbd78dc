"""What the log of a lake's table tells, and what it no longer tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.model.errors import SinkError
from sinks.contract.story import ORDERS, at, order
from tests.support.lake_story import Story, rebuild, told

BOTH = pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "hiding"])


@BOTH
def test_texts_that_end_lines_elsewhere_end_no_action_of_the_log(tmp_path: Path, vectors: bool) -> None:
    """The library writes them as they are into what it notes of a file's least and greatest values."""
    story = Story(tmp_path, vectors=vectors)
    for number, sign in enumerate("\u2028\u2029\x85"):
        story.batch(order(number, at(number), item=f"a{sign}b", note=f"a{sign}b"))
    rebuild(story)
    log = Path(story.path) / "_delta_log"
    texts = [commit.read_text(encoding="utf-8") for commit in log.glob("*.json")]
    assert any(len(text.splitlines()) > text.count("\n") for text in texts)
    story.restart()
    story.batch(order(7, at(7)))
    if not vectors:
        DeltaTable(story.path).optimize.compact()
    story.batch(order(8, at(8)))
    assert not story.sink.maintain(60)
    story.is_whole()


@BOTH
def test_what_the_log_no_longer_tells_is_mended_by_building_the_table_anew(
    tmp_path: Path, vectors: bool
) -> None:
    story = told(vectors, tmp_path)
    known = DeltaTable(story.path).version()
    for text in ("first", "second"):
        DeltaTable(story.path).alter.set_table_description(text)
    DeltaTable(story.path).create_checkpoint()
    for version in range(known + 2):
        (Path(story.path) / "_delta_log" / f"{version:020d}.json").unlink()
    story.restart()
    with pytest.raises(SinkError) as caught:
        story.sink.prepare(ORDERS)
    assert caught.value.code == "DELTA_FOREIGN_COMMIT"
    rebuild(story)
    story.is_whole()
    story.batch(order(2, at(24)), order(50, at(25)))
    story.is_whole()
