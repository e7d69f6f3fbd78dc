"""A recovery goes on past one table whose target refuses, and tells of that table at that sink alone."""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli import home as cli_home
from headrace.cli import recover as room
from headrace.cli.main import app
from headrace.config.pipeline import load_pipeline
from headrace.control import recover
from headrace.control.context import Context
from headrace.control.differences import Differences, compare, keep
from headrace.control.entries import VerdictEntry
from headrace.control.kafka import Kafka
from headrace.control.pipelines import spec_path
from headrace.control.recovery import beside, hand_over, sweep
from headrace.control.recovery.job import Job
from headrace.control.recovery.left_out import LeftOut
from headrace.control.registry import ResnapshotEntry, now_ms
from headrace.control.runs import asking, repository, worker
from headrace.control.runs import job as runs_job
from headrace.control.runs.passed import reread
from headrace.control.runs.repository import Phase, active, leave_behind, run_of
from headrace.control.verdicts import LEFT_OUT, State, healed, standing
from headrace.model.errors import SinkError, UsageError
from sinks.base import Stored
from spark_jobs.troubles import Troubles
from tests.support.recovering import NOW, OTHER, TOPIC, Broken, NewTopics, begun, filled, hasty, opened, says
from tests.support.small_table import SCHEMA, TABLE

NO_FILE = SinkError("A data file is gone.", code="NO_FILE", hint="repair it", table=TABLE)


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty(monkeypatch)


@pytest.fixture
def job(context: Context) -> Job:
    return begun(context)


def trouble(state: str = "failed") -> dict[str, Any]:
    return {"code": "NO_FILE", "state": state, "message": "A data file is gone.", "hint": "", "since_ms": 1}


def test_every_sink_is_given_the_new_life_though_a_target_refuses(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "refuses", {"prepare": NO_FILE})
    hand_over.hand_over(job)
    for name in ("early", "late"):
        spec = load_pipeline(spec_path(job.context, name))
        assert spec.runs
        assert {table.epoch for table in spec.tables} == {NOW}
        assert job.left_out(name) == {TOPIC: ("NO_FILE", "A data file is gone.")}
        troubles = Troubles(spec)
        assert [troubles.is_shut(str(schema.table)) for schema in (SCHEMA, OTHER)] == [True, False]
        assert troubles.told()["public.t"]["hint"] == "headrace resnapshot shop public.t"
        # What a target's progress says of a stranger's commits, say, is of the former life.
        assert opened(job.registry.sink(name)).progress() == {}


@pytest.mark.parametrize("state", ["failed", "degraded", "resync_required"])
def test_a_table_that_stays_in_trouble_is_left_out_and_the_others_are_swept(job: Job, state: str) -> None:
    for name in ("early", "late"):
        filled(job, name, OTHER, *([SCHEMA] if name == "late" else []))
    says(job, "early", {str(TABLE): trouble(state)}, behind=5)
    says(job, "late", {})
    found, left = sweep.sweep(job)
    remedy = "headrace resnapshot shop public.t"
    assert left == [LeftOut("early", "public.t", "NO_FILE", "A data file is gone.", remedy)]
    assert found == []  # nobody has noted what they held
    rows = {
        (name, schema.table.name): opened(job.registry.sink(name)).count(schema)
        for name in ("early", "late")
        for schema in (SCHEMA, OTHER)
    }
    assert rows == {("early", "t"): 9, ("early", "other"): 5, ("late", "t"): 5, ("late", "other"): 5}


def test_a_table_that_is_being_filled_again_is_waited_for(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("early", "late"):
        filled(job, name, OTHER, SCHEMA)
        says(job, name, {str(TABLE): trouble("catching_up")}, behind=5)
    looks = iter(range(100))

    def pause(_: float) -> None:
        if next(looks) == 40:
            for name in ("early", "late"):
                says(job, name, {})

    monkeypatch.setattr(sweep, "_PATIENCE_S", 0.0)
    monkeypatch.setattr("time.sleep", pause)
    assert sweep.sweep(job) == ([], [])


@pytest.mark.parametrize("what", ["truncate", "scan"])
def test_a_target_that_refuses_the_sweep_or_a_last_look_is_left_out(
    job: Job, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    for name in ("early", "late"):
        stored = filled(job, name, OTHER, SCHEMA)
        keep(job.digests(name), stored, [SCHEMA, OTHER])
        says(job, name, {})
    monkeypatch.setattr(Broken, "refuses", {what: NO_FILE})
    found, left = sweep.sweep(job)
    assert {(one.sink, one.table) for one in left} == {("early", "public.t"), ("late", "public.t")}
    assert {(one.sink, one.table, one.removed) for one in found} == {
        ("early", "public.other", 4),
        ("late", "public.other", 4),
    }


def test_a_table_of_which_kafka_has_dropped_records_is_not_swept(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that rested for long may have had nothing of it to apply: all its rows would go."""
    for name in ("early", "late"):
        filled(job, name, OTHER, SCHEMA)
        says(job, name, {})
    monkeypatch.setattr(NewTopics, "first", 3)
    _, left = sweep.sweep(job)
    assert {(one.sink, one.table, one.code) for one in left} == {
        ("early", "public.t", "KAFKA_DATA_LOST"),
        ("late", "public.t", "KAFKA_DATA_LOST"),
    }
    counts = [opened(job.registry.sink(name)).count(SCHEMA) for name in ("early", "late")]
    assert counts == [9, 9]


def test_what_kafka_drops_while_another_sink_is_away_is_not_held_against_one_that_has_it(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("early", "late"):
        filled(job, name, OTHER, SCHEMA)
        says(job, name, {})
    assert sweep.sweep(job)[1] == []
    monkeypatch.setattr(NewTopics, "first", 3)
    assert sweep.sweep(job)[1] == [], "the same command, given again for a third sink's sake"


def test_what_is_left_out_is_status_until_a_run_has_filled_another_target(job: Job) -> None:
    (remedy, registry) = "headrace resnapshot shop public.t", job.registry
    recover._finish(job, [LeftOut("early", "public.t", "NO_FILE", "A data file is gone.", remedy)])
    assert not registry.source("shop").gap
    (said,) = standing(registry, "shop")
    assert (said.sink, said.topic, said.code) == ("early", TOPIC, LEFT_OUT)
    assert (said.state, said.remedy) == (State.RESYNC_REQUIRED.value, remedy)
    assert "A data file is gone." in said.reason
    run = ResnapshotEntry(
        id="r",
        source="shop",
        phase="reading",
        begun_ms=now_ms() + 10,
        plan={"topics": [TOPIC], "sinks": ["early", "late"]},
    )
    with registry.begin() as session:
        session.add(run)
    # Also where the engine has met nothing, and the target can be prepared.
    assert asking._prepare(runs_job.Job(job.context, "r", registry, Kafka("")), run) == {"early": [TOPIC]}
    healed(registry, "shop", TOPIC, "late", run.begun_ms)
    assert standing(registry, "shop")
    healed(registry, "shop", TOPIC, "early", run.begun_ms)
    assert not standing(registry, "shop")


def test_what_no_run_can_read_is_filled_from_the_new_topic(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(beside, "why_unreadable", lambda _, schema: "?" if schema.table == TABLE else "")
    monkeypatch.setattr(beside, "Kafka", lambda _: NewTopics())
    monkeypatch.setattr(beside, "hand_over", lambda _, run: begun.append(run.id))
    left = [
        LeftOut("early", str(schema.table), "NO_FILE", "gone", "headrace recover shop")
        for schema in (SCHEMA, OTHER)
    ]
    mine, others = recover._finish(job, left)
    (run,) = active(job.registry, "shop")
    assert begun == [run.id]
    assert mine.remedy == f"headrace resnapshot wait {run.id}"
    assert others.remedy == "headrace recover shop"
    assert (run.phase, run.plan["sinks"], run.plan["shadows"]) == ("applying", ["early"], {"early": [TOPIC]})
    assert (run.plan["marks"], run.plan["ends"]) == ({TOPIC: [0]}, {TOPIC: [5]})
    assert {said.remedy for said in standing(job.registry, "shop")} == {mine.remedy, others.remedy}
    healed(job.registry, "shop", TOPIC, "early", run.begun_ms)
    assert {said.remedy for said in standing(job.registry, "shop")} == {others.remedy}


def test_what_stood_before_the_new_life_goes_and_what_is_left_out_stays(job: Job) -> None:
    with job.registry.begin() as session:
        for code in (LEFT_OUT, "X"):
            session.add(
                VerdictEntry(
                    source="shop", topic=TOPIC, sink="early", code=code, state="failed", reason="", remedy="",
                    first_ms=1, last_ms=1, healed={},
                )
            )  # fmt: skip
    recover._finish(
        job, [LeftOut("early", "public.t", "NO_FILE", "gone", "headrace resnapshot shop public.t")]
    )
    assert [said.code for said in standing(job.registry, "shop")] == [LEFT_OUT]


def test_a_table_that_cannot_be_read_is_compared_with_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, path = filled(job, "early", OTHER, SCHEMA), job.digests("early")
    monkeypatch.setattr(Broken, "refuses", {"scan": NO_FILE})
    assert keep(path, stored, [SCHEMA, OTHER]) == {"public.t": "A data file is gone."}
    monkeypatch.setattr(Broken, "refuses", {})
    assert compare(path, "early", stored, OTHER) == Differences("early", "public.other", 0, 0, 0)
    unread = Differences("early", "public.t", 0, 0, 0, unread="A data file is gone.")
    assert compare(path, "early", stored, SCHEMA) == unread
    with closing(sqlite3.connect(path)) as disk:  # as an older version has left it
        disk.execute("DROP TABLE unread")
        disk.commit()
    assert compare(path, "early", stored, SCHEMA) == Differences("early", "public.t", 9, 0, 0)
    monkeypatch.setattr(Broken, "refuses", {"scan": SinkError("no password", code="DENIED")})
    with pytest.raises(SinkError):
        keep(path, stored, [SCHEMA, OTHER])


def test_a_stranger_s_rows_without_keys_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Broken("m", Broken.Config(store=uuid.uuid4().hex))
    theirs = [Stored(None, {"id": n}, 0) for n in range(2)]  # type: ignore[arg-type] # a lake's, say
    monkeypatch.setattr(Broken, "scan", lambda *_: iter(theirs))
    keep(tmp_path / "d.db", stored, [SCHEMA])
    monkeypatch.setattr(Broken, "scan", lambda *_: iter(()))
    assert compare(tmp_path / "d.db", "m", stored, SCHEMA).removed == 2


def test_the_command_says_what_is_left_out_and_what_mends_it(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    remedy = "headrace resnapshot shop public.t"
    done = recover.Recovered(
        "shop",
        (Differences("early", "public.t", 0, 0, 0, unread="gone"), Differences("early", "public.o", 1, 2, 0)),
        (LeftOut("early", "public.t", "NO_FILE", "A data file is gone.", remedy),),
    )
    monkeypatch.setattr(cli_home, "_named", [])
    monkeypatch.setattr(room, "open_context", lambda _: context)
    monkeypatch.setattr(recover, "recover", lambda *_, **__: done)
    said = CliRunner().invoke(app, ["recover", "shop"])
    assert said.exit_code == 0
    assert "public.t at early is left out: A data file is gone." in said.output
    assert f"remedy: {remedy}" in said.output
    assert "shop recovered, but for 1 table at a sink: 3 rows were wrong" in said.output
    told = json.loads(CliRunner().invoke(app, ["recover", "shop", "--json"]).output)
    assert told["wrong"] == 3
    assert [one["remedy"] for one in told["left_out"]] == [remedy]
    assert [one["unread"] for one in told["tables"]] == ["gone", ""]


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.SWEEPING])
def test_runs_of_a_former_life_are_kept_and_nobody_works_on_them(job: Job, phase: Phase) -> None:
    registry = job.registry
    plan = {"topics": [TOPIC], "sinks": ["early"], "marks": {TOPIC: [1]}, "ends": {TOPIC: [7]}}
    counts = {"swept": {"early": {"public.t": 3}}}
    run = ResnapshotEntry(id="r", source="shop", phase=phase.value, begun_ms=10, plan=plan, counts=counts)
    with registry.begin() as session:
        session.add(run)
    assert reread(registry, "shop")
    with registry.begin() as session:
        leave_behind(session, "shop")
    kept = run_of(registry, "r")
    assert kept.phase == ("completed" if phase is Phase.COMPLETED else "aborted")
    assert kept.counts == counts
    assert reread(registry, "shop") == {}
    assert not active(registry, "shop")
    worker.work(runs_job.Job(job.context, "r", registry, Kafka("")))
    with pytest.raises(UsageError, match="Run r has ended: shop was recovered"):
        repository.change(registry, "r", phase=Phase.APPLYING)
    assert run_of(registry, "r").phase == kept.phase
