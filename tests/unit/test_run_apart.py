"""What becomes of a run is no matter of another one, nor of sinks that come later."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import select

from headrace.control.registry import SinkEntry
from headrace.control.runs import reading
from headrace.control.runs.passed import reread
from headrace.control.runs.repository import SWEEP_LARGE, Phase, change, end
from headrace.control.runs.sweeping import sweep
from headrace.control.sweeps import marks_to_pass
from headrace.control.verdicts import standing
from headrace.model.errors import SinkError
from tests.unit.test_run_sweeping import A, B, C, Shop, swept_here


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_what_a_run_has_found_of_a_table_without_a_sink_is_known_whatever_becomes_of_it(shop: Shop) -> None:
    with shop.registry.begin() as session:
        for sink in session.scalars(select(SinkEntry)):
            sink.tables = {topic: told for topic, told in sink.tables.items() if topic != B}
    reading.note_read(shop.job)
    end(shop.registry, shop.job.name, Phase.ABORTED)
    assert reread(shop.registry, "shop").keys() == {B}


@pytest.mark.parametrize("phase", [Phase.UNFINISHED, Phase.ABORTED, Phase.FAILED])
def test_rows_that_a_run_has_found_gone_and_may_not_remove_are_no_later_sink_s(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, phase: Phase
) -> None:
    """Each sink that has them says so of itself; one that comes later begins with what the run has found."""
    swept_here(shop, monkeypatch)
    for name in ("one", "two"):
        shop.settle(name, A, B, C)
    shop.many = {("one", A), ("two", A)}
    with pytest.raises(SinkError):
        sweep(shop.job)
    end(shop.registry, shop.job.name, phase)
    left = {(found.sink, found.topic, found.code) for found in standing(shop.registry, "shop")}
    assert left == {("one", A, SWEEP_LARGE), ("two", A, SWEEP_LARGE)}
    passed = marks_to_pass(shop.registry, "shop", shop.registry.source("shop").tables)
    assert {topic: told.marks for topic, told in passed.items()} == dict.fromkeys((A, B, C), (5,))


def test_who_is_aborted_stops_nobody_else_from_reading(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had asked for was stopped before another began to read."""
    change(shop.registry, shop.job.name, {"asked": True, "ends": None})
    stopped: list[str] = []
    monkeypatch.setattr(reading, "source_of", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(reading, "capture_of", lambda *_: None)
    monkeypatch.setattr(reading, "_stop", lambda job, *_: stopped.append(job.name))
    shop.context.run.mkdir(exist_ok=True)
    with (shop.context.run / "reading-shop.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reading.stop_reading(shop.job)
        assert stopped == []
    reading.stop_reading(shop.job)
    assert stopped == [shop.job.name]
