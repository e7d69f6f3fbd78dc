"""The lake after a power cut: what was settled is there; what was not can be applied again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.model.change import Change
from headrace.model.claim import Claim
from headrace.model.outcome import APPLIED
from sinks.contract.story import ORDERS, at, delete, expected, order, state
from sinks.delta import DeltaSink
from tests.support.lake_story import TOPIC
from tests.support.power_cut import Cut, Disk


def story() -> list[list[Change]]:
    """Return batches of changes: inserts, updates with deletes, and small ones that are joined later."""
    batches = [[order(n, at(n), note="n" * 40) for n in range(40)]]
    for round_ in range(8):
        offset = 100 * (round_ + 1)
        batches.append(
            [
                order(round_, at(offset), item="new"),
                delete(ORDERS, 20 + round_, at(offset + 1)),
                order(offset, at(offset + 2)),
            ]
        )
    return batches


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "hiding"])
def test_what_was_settled_is_there(tmp_path: Path, vectors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.delta.table._CHECKPOINT_INTERVAL", 5)
    monkeypatch.setattr("sinks.delta.files._ROWS", 64)
    batches = story()
    settled = [-1]
    disk = Disk(tmp_path / "disk", lambda: settled[-1])
    disk.root.mkdir()
    with disk.watched():
        sink = DeltaSink("lake", DeltaSink.Config(path=disk.root / "lake", deletion_vectors=vectors))
        sink.prepare(ORDERS)
        assert sink.claim([ORDERS], CLAIM, {}) == []
        for number, batch in enumerate(batches):
            assert sink.apply(ORDERS, batch) == [APPLIED] * len(batch)
            sink.settle({(TOPIC, 0): number})
            settled.append(number)
            disk.cut()
            if number == 6:
                sink.maintain(5)
                disk.cut()
        sink.close()
    chance = random.Random(14)
    cuts = chance.sample(disk.cuts, min(12, len(disk.cuts))) + disk.cuts[-2:]
    for cut in cuts:
        for mixed in (None, random.Random(chance.random())):
            cut.leaves(tmp_path / "after", mixed)
            _goes_on(tmp_path / "after" / "lake", cut, batches, vectors)


CLAIM = Claim("h1", "lake", "home", True, 1)


def _goes_on(path: Path, cut: Cut, batches: list[list[Change]], vectors: bool) -> None:
    """Start again as the engine does: from what the store says is settled."""
    assert isinstance(cut.promised, int)
    sink = DeltaSink("lake", DeltaSink.Config(path=path, deletion_vectors=vectors))
    sink.prepare(ORDERS)
    found = sink.progress([(TOPIC, 0)]).get((TOPIC, 0), -1)
    assert found >= cut.promised
    if found >= 0:
        assert sink.claims([ORDERS])[ORDERS.table] == CLAIM
    for number, batch in enumerate(batches[found + 1 :], found + 1):
        sink.apply(ORDERS, batch)
        sink.settle({(TOPIC, 0): number})
    newest = {change.key: change for batch in batches for change in batch}.values()
    assert state(sink, ORDERS) == expected(ORDERS, [c for c in newest if c.op.value != "delete"])
    sink.close()
