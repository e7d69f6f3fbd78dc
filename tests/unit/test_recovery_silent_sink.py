"""A sink that is in trouble stops no other sink's recovery, and none is stopped before anything has begun."""

from __future__ import annotations

import json

import pytest

from headrace.config.pipeline import load_pipeline, write_private
from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry
from headrace.control.pipelines import spec_path
from headrace.control.recovery import hand_over, new_life, sweep
from headrace.control.recovery.job import Job
from headrace.control.registry import SourceEntry
from headrace.model.errors import SinkUnavailable, StackError
from tests.support.recovering import NOW, OTHER, Broken, begun, filled, hasty, opened, says
from tests.support.small_table import SCHEMA


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty(monkeypatch)


@pytest.fixture
def job(context: Context) -> Job:
    return begun(context)


def test_a_store_that_does_not_answer_is_no_table_s_trouble_and_keeps_no_other_sink(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = opened(job.registry.sink("early")).config.store
    monkeypatch.setattr(Broken, "silent", {early})
    hand_over.hand_over(job)
    assert job.left.keys() == {"early"}
    runs = {name: load_pipeline(spec_path(job.context, name)).runs for name in ("early", "late")}
    assert runs == {"early": False, "late": True}
    filled(job, "late", OTHER, SCHEMA)
    says(job, "late", {})
    sweep.sweep(job)
    assert opened(job.registry.sink("late")).count(SCHEMA) == 5
    with pytest.raises(SinkUnavailable) as told:
        job.refuse_left()
    assert told.value.code == "DOWN"
    assert "early is left: It does not answer." in told.value.message
    assert told.value.hint == "Is it running? Then: headrace recover shop"
    # The same command goes on with it; the other one has the new life already.
    monkeypatch.setattr(Broken, "silent", set())
    before = spec_path(job.context, "late").stat().st_mtime_ns
    hand_over.hand_over(job)
    assert not job.left
    assert load_pipeline(spec_path(job.context, "early")).runs
    assert spec_path(job.context, "late").stat().st_mtime_ns == before


def test_a_store_that_falls_silent_before_the_sweep_keeps_no_other_sink(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_SILENT_S", 0.1)
    for name in ("early", "late"):
        filled(job, name, OTHER, SCHEMA)
    says(job, "early", {}, behind=5)
    says(job, "late", {})
    running = json.loads((job.context.progress / "early.json").read_text())

    def falls_silent(*_: object) -> None:
        error = {"code": "DOWN", "message": "It does not answer.", "hint": ""}
        told = json.dumps({**running, "state": "degraded", "error": error})
        write_private(job.context.progress / "early.json", told)

    monkeypatch.setattr(sweep, "wait_running", falls_silent)
    sweep.sweep(job)
    assert {name: error.code for name, error in job.left.items()} == {"early": "DOWN"}
    assert opened(job.registry.sink("late")).count(SCHEMA) == 5


def test_a_recovery_that_ends_before_anything_has_begun_lets_the_sinks_go_on(job: Job) -> None:
    with job.registry.begin() as session:
        session.get_one(RecoveryEntry, "shop").phase = "stopping"
        session.get_one(SourceEntry, "shop").gap = new_life.BEGUN
    new_life.keep_digests(job)
    assert not load_pipeline(spec_path(job.context, "early")).runs
    assert job.digests("early").exists()
    with pytest.raises(StackError), new_life.or_give_up(job):
        raise StackError("Connect does not answer.", code="CONNECT_UNREACHABLE")
    assert all(load_pipeline(spec_path(job.context, name)).runs for name in ("early", "late"))
    assert not job.digests("early").exists()
    assert not job.registry.source("shop").gap
    with job.registry.begin() as session:
        assert session.get(RecoveryEntry, "shop") is None


def test_a_recovery_that_has_given_the_former_life_up_leaves_the_sinks_stopped(job: Job) -> None:
    with job.registry.begin() as session:
        session.get_one(RecoveryEntry, "shop").phase = "beginning"
    job.begins()
    with pytest.raises(StackError), new_life.or_give_up(job):
        raise StackError("Connect does not answer.", code="CONNECT_UNREACHABLE")
    assert not load_pipeline(spec_path(job.context, "early")).runs
    assert job.run.phase == "beginning"


def test_a_pipeline_file_that_is_damaged_keeps_no_other_sink_and_not_the_end_of_a_recovery(job: Job) -> None:
    with job.registry.begin() as session:
        session.get_one(RecoveryEntry, "shop").phase = "stopping"
        session.get_one(SourceEntry, "shop").gap = new_life.BEGUN
    spec_path(job.context, "early").write_text("{")
    new_life.keep_digests(job)
    assert {name: error.code for name, error in job.left.items()} == {"early": "PIPELINE_DAMAGED"}
    assert job.left["early"].hint == "headrace sink resume early"
    assert job.digests("late").exists()
    with pytest.raises(StackError), new_life.or_give_up(job):
        raise StackError("Connect does not answer.", code="CONNECT_UNREACHABLE")
    assert load_pipeline(spec_path(job.context, "late")).runs
    assert not job.registry.source("shop").gap
    with job.registry.begin() as session:
        assert session.get(RecoveryEntry, "shop") is None


def test_a_pipeline_file_that_is_damaged_is_made_anew_with_the_new_life(job: Job) -> None:
    spec_path(job.context, "early").write_text("{")
    hand_over.hand_over(job)
    assert not job.left
    told = {name: load_pipeline(spec_path(job.context, name)) for name in ("early", "late")}
    assert all(spec.runs for spec in told.values())
    assert told["early"].tables == told["late"].tables
    assert {table.epoch for table in told["early"].tables} == {NOW}
    assert job.digests("early").exists()
