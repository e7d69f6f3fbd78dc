"""A command that works on a sink's targets stops its query; whether a person paused it is another matter."""

from __future__ import annotations

import threading
import time

import pytest

from headrace.config.pipeline import PipelineSpec, load_pipeline, write_private
from headrace.control import sink as control_sink
from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry, ResnapshotEntry
from headrace.control.left_resting import have_go_on
from headrace.control.pipelines import pipeline_of, spec_path, withheld, withhold
from headrace.control.registry import Registry, SinkEntry
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry
from tests.support.waiting import ended

SCHEMA = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32),), ("id",))


@pytest.fixture(autouse=True)
def cache(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a sink; no engine runs it, so it is let go of at once."""
    monkeypatch.setattr(control_sink, "ensure_engine", lambda _: None)
    registry = Registry(context.registry)
    entry = SinkEntry(
        name="cache",
        kind="memory",
        source="shop",
        settings={},
        tables={"shop.public.t": {}},
        on_schema_change="lenient",
        created_ms=50,
        incomplete={},
        incomplete_ms={},
    )
    for row in (source_entry("shop", [SCHEMA], epoch=1, loaded_ms=2), entry):
        with registry.begin() as session:
            session.add(row)
    source = registry.source("shop")
    told = pipeline_of(context, source, registry.sink("cache"), source.tables)
    write_private(spec_path(context, "cache"), told.model_dump_json())


def told(context: Context) -> PipelineSpec:
    return load_pipeline(spec_path(context, "cache"))


def test_it_goes_on_after(context: Context) -> None:
    with withheld(context, "cache", doing="a test"):
        assert not told(context).runs
    assert told(context).runs


def test_a_pause_of_before_stays(context: Context) -> None:
    control_sink.pause(context, "cache")
    with withheld(context, "cache", doing="a test"):
        assert not told(context).runs
    assert told(context).paused


def test_a_pause_meanwhile_stays(context: Context) -> None:
    with withheld(context, "cache", doing="a test"):
        control_sink.pause(context, "cache")
    assert told(context).paused


def test_a_resume_meanwhile_is_heeded_when_the_work_is_done(context: Context) -> None:
    control_sink.pause(context, "cache")
    with withheld(context, "cache", doing="a test"):
        control_sink.resume(context, "cache")
        assert not told(context).runs
    assert told(context).runs


def test_a_resume_after_a_command_that_died_is_heeded_at_once(context: Context) -> None:
    withhold(context, "cache")
    control_sink.resume(context, "cache")
    assert told(context).runs


def test_what_a_command_that_died_had_rest_goes_on(context: Context) -> None:
    registry = Registry(context.registry)
    withhold(context, "cache")
    assert have_go_on(context, registry, "shop") == ["cache"]
    assert told(context).runs
    assert have_go_on(context, registry, "shop") == []


def test_what_a_command_at_work_has_rest_does_not_go_on(context: Context) -> None:
    with withheld(context, "cache", doing="a test"):
        assert have_go_on(context, Registry(context.registry), "shop") == []
        assert not told(context).runs


@pytest.mark.parametrize("whose", ["a recovery", "a run that puts a target in its place"])
def test_what_goes_on_by_itself_is_let_rest(context: Context, whose: str) -> None:
    registry = Registry(context.registry)
    withhold(context, "cache")
    with registry.begin() as session:
        if whose == "a recovery":
            session.add(RecoveryEntry(source="shop", phase="beginning", begun_ms=1, plan={}))
        else:
            plan = {"switching": "cache"}
            session.add(ResnapshotEntry(id="r", source="shop", phase="sweeping", begun_ms=1, plan=plan))
    assert have_go_on(context, registry, "shop") == []
    assert not told(context).runs


def test_the_next_command_waits(context: Context) -> None:
    times: list[float] = []

    def other() -> None:
        with withheld(context, "cache", doing="a test"):
            times.append(time.monotonic())

    thread = threading.Thread(target=other)
    with withheld(context, "cache", doing="a test"):
        thread.start()
        thread.join(0.3)
        over = time.monotonic()
        assert not times
    ended(thread)
    assert times[0] >= over
    assert told(context).runs
