"""Notes beside a checkpoint and marks of claims: what is damaged is not gone by."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config.holders import holders, remember
from spark_jobs.checkpoint import put_aside
from spark_jobs.held import Holds, save_holds

DAMAGED = ["", "null", "[1]", "\0\0", '{"a": {"1": [', '{"a": 1}', '{"a": {"b": {}}}', "[{}]"]
OURS = ["emptying.json", "held.json", "history.json", "requested.json", "targets.json", "troubles.json"]
NOTES = [*OURS, "metadata"]


@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("content", DAMAGED)
def test_a_checkpoint_with_a_damaged_note_is_put_aside(tmp_path: Path, note: str, content: str) -> None:
    checkpoint = tmp_path / "cache"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / note).write_text(content)
    aside = put_aside(checkpoint)
    assert aside is not None
    assert (aside / note).read_text() == content
    assert not checkpoint.exists()
    assert put_aside(checkpoint) is None


def test_a_checkpoint_that_is_whole_or_none_stays(tmp_path: Path) -> None:
    holds = Holds()
    holds.hold("public.t", "1", 1 << 62)
    save_holds(tmp_path, holds)
    assert put_aside(tmp_path) is None
    assert put_aside(tmp_path / "none") is None


@pytest.mark.parametrize("content", [*DAMAGED[:2], "{}", "[1]"])
def test_marks_that_are_damaged_are_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "owners" / "cache.json"
    assert holders(path) is None
    remember(path, ["b", "a"])
    assert holders(path) == ["b", "a"]
    path.write_text(content)
    assert holders(path) == []
