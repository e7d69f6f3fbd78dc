"""A sink that is late is waited for until it has what a table had when it was counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from connectors.row_count import RowCount
from headrace.config.pipeline import write_private
from headrace.control.kafka import Kafka
from headrace.control.runs import counted
from headrace.control.runs.counted import refuse_unseen
from headrace.control.sweeps import Found
from headrace.model.errors import SinkError
from headrace.model.schema import TableId
from tests.unit.test_run_sweeping import A, Shop

END = 50
"""Where the table's topic ends when it is counted."""


class Counts:
    """A database of nine rows that tells how often they were counted, and a topic to which nobody writes."""

    def __init__(self) -> None:
        self.times = 0
        self.low = 0

    def count_rows(self, _: object, __: TableId) -> RowCount:
        self.times += 1
        return RowCount(9, 1, 1, frozenset())

    def records(self, *_: object) -> list[object]:
        return []

    def ends(self, topics: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {(topic, 0): (self.low, END) for topic in topics}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    made = Counts()
    monkeypatch.setattr(counted, "source_of", lambda *_: made)
    for name in ("capture_of", "until_confirmed"):
        monkeypatch.setattr(counted, name, lambda *_: None)
    monkeypatch.setattr(counted, "marks_of", lambda *_: [END])
    found = Found(older=0, total=9, removed=0, refused=False, settled=(END,))
    monkeypatch.setattr(counted, "ask_sweep", lambda *_: found)
    return made


def late(shop: Shop, monkeypatch: pytest.MonkeyPatch, counts: Counts) -> None:
    """Have the sink settle a record a second."""

    def settles() -> None:
        settled = min(10 + int(shop.time.now), END)
        told = {"state": "running", "updated_ms": 1, "offsets": {A: {"0": settled}}, "tables": {}}
        write_private(shop.context.progress / "one.json", json.dumps(told))

    settles()
    shop.time.meanwhile = settles
    monkeypatch.setattr(counted, "time", shop.time)
    shop.job.kafka = cast("Kafka", counts)


def test_one_that_gets_on_is_waited_for_again_and_the_table_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts
) -> None:
    """Other tables and sinks have their turn between two waits."""
    shop = Shop(tmp_path)
    late(shop, monkeypatch, counts)
    table = shop.registry.source("shop").tables[0]
    for _ in range(3):
        with pytest.raises(SinkError) as behind:
            refuse_unseen(shop.job, "one", table, [5])
        assert (behind.value.code, counts.times) == ("SINK_BEHIND", 1)
    for times in (1, 2):
        refuse_unseen(shop.job, "one", table, [5])
        assert counts.times == times


def test_a_count_of_which_kafka_has_let_go_of_what_came_since_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts
) -> None:
    """Rows that came meanwhile would be taken for rows that the run has read."""
    shop = Shop(tmp_path)
    late(shop, monkeypatch, counts)
    shop.time.now = float(END)
    table = shop.registry.source("shop").tables[0]
    counts.low = END + 1
    shop.time.meanwhile()
    with pytest.raises(SinkError) as behind:
        refuse_unseen(shop.job, "one", table, [5])
    assert behind.value.code == "SINK_BEHIND"
    counts.low = END
    refuse_unseen(shop.job, "one", table, [5])
    assert counts.times == 2
