"""A target that was away for a moment is told from one that was made anew."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from headrace.model.schema import TableId, TableSchema
from sinks.base import Sink
from spark_jobs.targets import Targets
from tests.support.small_table import TABLE
from tests.unit.test_table_trouble import spec


class Shelf:
    """A store that says which target a table has."""

    told: dict[TableId, str] = {}

    def identities(self, _: list[TableSchema]) -> dict[TableId, str]:
        return self.told


@pytest.mark.parametrize("known", [True, False])
def test_only_the_one_that_was_filled_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """One that nobody has seen before may be new and empty."""
    monkeypatch.setattr("spark_jobs.targets._EVERY_S", -1.0)
    shelf, targets = Shelf(), Targets(spec(tmp_path))
    sink = cast("Sink", shelf)
    if known:
        shelf.told = {TABLE: "first"}
        assert targets.lost(sink) == set()
    shelf.told = {}
    assert targets.lost(sink) == {"t"}
    shelf.told = {TABLE: "first"}
    assert targets.back(sink, {"t"}) == ({"t"} if known else set())
    shelf.told = {}
    assert targets.lost(sink) == {"t"}
    shelf.told = {TABLE: "another"}
    assert targets.back(sink, {"t"}) == set()
