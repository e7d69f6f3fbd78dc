"""What becomes of a run is no matter of another one, nor of sinks that come later."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import select

from headrace.config.pipeline import write_private
from headrace.control.registry import SinkEntry, SourceTableEntry
from headrace.control.runs import reading, sweeping, table_sweep
from headrace.control.runs.job import Job
from headrace.control.runs.passed import reread
from headrace.control.runs.repository import SWEEP_LARGE, Phase, change, end
from headrace.control.runs.settling import pipeline_of
from headrace.control.runs.sweeping import sweep
from headrace.control.sweeps import marks_to_pass
from headrace.control.verdicts import State, Verdict, lacking_later, standing
from headrace.model.errors import SinkError, SourceError
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


def test_what_sinks_to_come_will_lack_is_told_until_it_is_known_that_every_row_was_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has passed over a row has not told it anew: who comes later has it as it was."""
    source = shop.registry.source("shop")
    for topic in (A, B):
        lacking_later(shop.registry, source, topic, Verdict(State.RESYNC_REQUIRED, "without new columns"))
    change(shop.registry, shop.job.name, begun_ms=shop.registry.moment("shop"))
    reading.note_read(shop.job)
    swept_here(shop, monkeypatch)
    for name in ("one", "two"):
        shop.settle(name, A, B, C)
        shop.many |= {(name, A), (name, B)}
        change(shop.registry, shop.job.name, {"sweep_many": True})

    def counted(_: Job, __: str, table: SourceTableEntry, *___: object) -> None:
        if table.topic == A:
            raise SourceError("Rows were passed over.", code="RESNAPSHOT_INCOMPLETE")

    monkeypatch.setattr(table_sweep, "refuse_unseen", counted)
    with pytest.raises(SourceError):
        sweep(shop.job)
    told = {found.topic for found in standing(shop.registry, "shop") if found.code == "COLUMN_FOLLOWED"}
    assert told == {A}


@pytest.mark.parametrize(("below", "lacks"), [(5, False), (6, True)])
def test_a_target_filled_beside_what_is_served_never_takes_its_place_without_what_kafka_has_dropped(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, below: int, lacks: bool
) -> None:
    """Who fills it says so of its own progress; the run has read all of before its mark, 5, once more."""
    swept_here(shop, monkeypatch)
    change(shop.registry, shop.job.name, {"shadows": {"one": [A]}, "sinks": ["one"]})
    monkeypatch.setattr(sweeping, "fill", lambda *_: None)
    table = next(one for one in shop.registry.source("shop").tables if one.topic == A)
    lost = {"code": "KAFKA_DATA_LOST", "state": "resync_required", "message": "Kafka has them no more."}
    told = {
        "state": "running",
        "updated_ms": 1,
        "offsets": {A: {"0": 10}},
        "tables": {"public.a": {"trouble": lost | {"hint": "", "below": {"0": below}}}},
    }
    write_private(shop.context.progress / f"{pipeline_of(shop.job.run, 'one', table)}.json", json.dumps(told))
    shop.settle("one", A, B, C)
    monkeypatch.setattr(table_sweep, "switch", lambda *_: None)
    if not lacks:
        sweep(shop.job)
        assert shop.swept == {"one": ["public.a", "public.b", "public.c"]}
        return
    with pytest.raises(SourceError) as refused:
        sweep(shop.job)
    assert (refused.value.code, refused.value.hint) == (
        "RESNAPSHOT_INCOMPLETE",
        f"headrace resnapshot resume {shop.job.name}",
    )
    assert shop.swept == {"one": ["public.b", "public.c"]}
