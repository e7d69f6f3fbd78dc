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
from headrace.control.runs.repository import Phase, change, end
from tests.unit.test_run_sweeping import B, Shop


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
