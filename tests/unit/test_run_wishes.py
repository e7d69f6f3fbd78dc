"""What people ask of a run while it ends, and what others do to it that read its tables, or recover them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.control.context import Context
from headrace.control.registry import ResnapshotEntry, SinkEntry, now_ms
from headrace.control.runs import asking, reading, shadowing, start, worker
from headrace.control.runs.job import Job
from headrace.control.runs.repository import (
    FORMER,
    SWEEP_LARGE,
    UNSWEPT,
    Phase,
    change,
    end,
    insert,
    leave_behind,
    overtaken,
    run_of,
    take_over,
)
from headrace.control.verdicts import State, Verdict, record, standing
from headrace.model.errors import SinkUnavailable, SourceError, UsageError
from sinks.contract.story import at, expected, state, upsert
from sinks.memory import MemorySink
from tests.unit.test_run_sweeping import A, B, C, Shop, swept_here, topics

LARGE = Verdict(State.DEGRADED, "many rows are gone", "headrace resnapshot resume RUN --sweep-many")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(tmp_path)
    monkeypatch.setattr(start, "hand_over", lambda *_: None)
    return made


def now(shop: Shop, run: ResnapshotEntry) -> ResnapshotEntry:
    return run_of(shop.registry, run.id)


@pytest.mark.parametrize("order", [start.pause, start.resume])
def test_a_run_that_is_to_end_neither_rests_nor_goes_on(shop: Shop, order: Any) -> None:
    run = start.abort(shop.context, shop.job.name)
    with pytest.raises(UsageError) as refused:
        order(shop.context, run.id)
    assert refused.value.as_dict() == {
        "code": "RESNAPSHOT_OVER",
        "message": f"Run {run.id} is being aborted.",
        "hint": f"headrace resnapshot show {run.id}",
    }
    assert now(shop, run).wanted == "abort"
    assert start.abort(shop.context, run.id).wanted == "abort"


@pytest.mark.parametrize("order", [start.pause, start.abort])
def test_a_run_that_is_over_is_asked_for_nothing(shop: Shop, order: Any) -> None:
    run = change(shop.registry, shop.job.name, phase=Phase.COMPLETED)
    with pytest.raises(UsageError) as refused:
        order(shop.context, run.id)
    assert refused.value.message == f"Run {run.id} is completed."
    assert now(shop, run).wanted == ""


@pytest.mark.parametrize("order", [start.pause, start.resume, start.abort])
def test_a_run_that_a_recovery_has_ended_is_over(shop: Shop, order: Any) -> None:
    with shop.registry.begin() as session:
        leave_behind(session, "shop")
    with pytest.raises(UsageError) as refused:
        order(shop.context, shop.job.name)
    assert (refused.value.code, refused.value.message) == (
        "RESNAPSHOT_OVER", f"Run {shop.job.name} is aborted."
    )  # fmt: skip
    assert refused.value.hint.startswith("headrace resnapshot ")


def test_a_run_that_goes_on_is_as_far_as_it_was(shop: Shop) -> None:
    run = start.pause(shop.context, shop.job.name)
    assert (run.wanted, start.resume(shop.context, run.id).phase) == ("pause", "applying")
    change(shop.registry, run.id, phase=Phase.UNFINISHED)
    run = start.resume(shop.context, run.id, sweep_many=True)
    assert (run.phase, run.plan["sweep_many"], bool(run.plan["ends"])) == ("sweeping", True, True)
    change(shop.registry, run.id, phase=Phase.FAILED)
    run = start.resume(shop.context, run.id)
    assert (run.phase, run.plan["marks"], run.plan["ends"]) == ("queued", {}, None)


def test_what_a_run_had_asked_for_before_it_rests_is_stopped_and_asked_again(shop: Shop) -> None:
    change(shop.registry, shop.job.name, {"signal": "first", "asked": True}, phase=Phase.READING)
    other = insert(shop.registry, "shop", [A], ["one"], queue=True, why="")
    job = Job(shop.context, other.id, shop.registry, shop.job.kafka)
    assert not asking._left_behind(job, "first"), "it is being read for"
    start.pause(shop.context, shop.job.name)
    assert asking._left_behind(job, "first")
    plan = shop.job.run.plan
    assert (plan["asked"], plan["signal"] != "first") == (False, True)


def test_what_is_read_is_not_asked_for_once_more(shop: Shop) -> None:
    def wanted(**plan: Any) -> list[str]:
        run = change(shop.registry, shop.job.name, plan)
        return [table.topic for table in asking.asked_for(shop.job, run)]

    assert wanted() == topics
    assert wanted(done=[A]) == [B, C]
    assert wanted(done=topics) == []
    assert wanted(again={A: [[1]]}) == [A]


def unfinished(shop: Shop, mine: list[str], sinks: list[str]) -> ResnapshotEntry:
    """Return a run that has read its tables, and waits for a person's word."""
    change(shop.registry, shop.job.name, phase=Phase.COMPLETED)
    run = insert(shop.registry, "shop", mine, sinks, queue=False, why="")
    record(shop.registry, shop.registry.source("shop"), mine, SWEEP_LARGE, LARGE, sink=sinks[0])
    return change(shop.registry, run.id, phase=Phase.UNFINISHED, begun_ms=now_ms() - 1000)


def test_an_unfinished_run_is_left_to_one_that_has_read_its_tables_and_to_no_other(shop: Shop) -> None:
    first = unfinished(shop, [A, B], ["one"])
    whole = insert(shop.registry, "shop", topics, ["one", "two"], queue=False, why="", whole=True)
    assert now(shop, first).phase == "unfinished", "it has not read anything yet"
    assert [run.id for run in overtaken(shop.registry, whole)] == [first.id]
    # It leaves a table out, as it does when it is about to read.
    assert not overtaken(shop.registry, change(shop.registry, whole.id, {"topics": [A, C]}))
    assert not overtaken(shop.registry, change(shop.registry, whole.id, {"topics": topics, "sinks": ["two"]}))
    earlier = change(shop.registry, whole.id, {"sinks": ["one"]}, begun_ms=first.begun_ms - 1)
    assert not overtaken(shop.registry, earlier), "what it has read is older"

    change(shop.registry, whole.id, begun_ms=now_ms())
    (found,) = overtaken(shop.registry, now(shop, whole))
    take_over(shop.registry, found.id, whole.id)
    ended = now(shop, first)
    assert (ended.phase, ended.reason) == ("aborted", f"run {whole.id} has read the same tables anew")
    told = {
        found.topic: found.remedy for found in standing(shop.registry, "shop") if found.code == SWEEP_LARGE
    }
    assert told == {t: f"headrace resnapshot shop {t.partition('.')[2]} --sweep-many" for t in (A, B)}


def test_a_sink_that_is_gone_keeps_no_run_unfinished(shop: Shop) -> None:
    first = unfinished(shop, [A], ["one", "two"])
    with shop.registry.begin() as session:
        session.delete(session.get_one(SinkEntry, "two"))
    later = insert(shop.registry, "shop", [A], ["one"], queue=False, why="")
    assert [run.id for run in overtaken(shop.registry, later)] == [first.id]


def test_an_unfinished_run_that_goes_on_again_is_not_ended_by_another(shop: Shop) -> None:
    first = unfinished(shop, [A], ["one"])
    start.resume(shop.context, first.id)
    take_over(shop.registry, first.id, "another")
    assert now(shop, first).phase == "sweeping"


def test_a_shadow_of_the_life_before_takes_no_targets_place(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery works on the sink while the run waits for it, and ends the run."""
    captured = shop.registry.source("shop").tables[0]
    run, schema = change(shop.registry, shop.job.name, {"shadows": {"one": [A]}}), captured.schema
    config = MemorySink.Config(store=str(shop.context.run))
    with shop.registry.begin() as session:
        session.get_one(SinkEntry, "one").settings = {"store": config.store}
    entry = shop.registry.sink("one")
    served, before = MemorySink("one", config), [upsert(schema, {"id": 1}, at(1))]
    served.prepare(schema)
    served.apply(schema, before)
    with closing(shadowing._open(run, entry, captured)) as shadow:
        shadow.prepare(schema)
        shadow.settle({(A, 0): 5})

    @contextmanager
    def recovered(context: Context, *sinks: str, doing: str) -> Iterator[None]:
        with shop.registry.begin() as session:
            leave_behind(session, "shop")
        yield

    monkeypatch.setattr(shadowing, "withheld", recovered)
    with pytest.raises(UsageError) as refused:
        shadowing.switch(shop.context, run, entry, captured)
    assert refused.value.code == FORMER
    assert state(served, schema) == expected(schema, before)


def test_a_shadow_whose_process_died_in_the_middle_of_its_switch_goes_with_its_sink(shop: Shop) -> None:
    """Its pipeline has gone before."""
    captured = shop.registry.source("shop").tables[0]
    run = change(shop.registry, shop.job.name, {"shadows": {"one": [A]}})
    with shop.registry.begin() as session:
        session.get_one(SinkEntry, "one").settings = {"store": str(shop.context.run)}
    with closing(shadowing._open(run, shop.registry.sink("one"), captured)) as shadow:
        shadow.prepare(captured.schema)
        shadow.apply(captured.schema, [upsert(captured.schema, {"id": 1}, at(1))])
        shadow.settle({(A, 0): 5})
        shadowing.discard_of_sink(shop.context, "one")
        assert (state(shadow, captured.schema), shadow.progress()) == ({}, {})


def test_what_a_store_that_was_away_keeps_of_a_shadow_is_removed_by_the_next_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = shop.registry.source("shop").tables[0]
    run = change(shop.registry, shop.job.name, {"shadows": {"one": [A]}}, phase=Phase.UNFINISHED)
    with shop.registry.begin() as session:
        session.get_one(SinkEntry, "one").settings = {"store": str(shop.context.run)}
    with closing(shadowing._open(run, shop.registry.sink("one"), captured)) as shadow:
        shadow.prepare(captured.schema)
        shadow.apply(captured.schema, [upsert(captured.schema, {"id": 1}, at(1))])
        shadow.settle({(A, 0): 5})

        def away(*_: object) -> None:
            raise SinkUnavailable("It does not answer.", code="MEMORY_AWAY")

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(shadowing, "_open", away)
            ended = start.abort(shop.context, run.id)
            shadowing.clear_away(shop.context, "shop")
        assert ended.reason.startswith("the store of one did not answer, and keeps")
        assert state(shadow, captured.schema)
        shadowing.clear_away(shop.context, "shop")
        assert (state(shadow, captured.schema), shadow.progress()) == ({}, {})
    assert now(shop, run).plan["litter"] == []


@pytest.mark.parametrize(("wanted", "phase"), [("", "failed"), ("abort", "aborted")])
def test_a_run_that_fails_leaves_word_of_what_it_has_not_swept(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, wanted: str, phase: str
) -> None:
    """An abort that comes too late to be heeded is no failure."""
    swept_here(shop, monkeypatch)
    shop.settle("one", A, B, C)
    shop.settle("two", A, B, C)
    shop.refuses = {("two", A): SourceError("Rows were passed over.", code="RESNAPSHOT_INCOMPLETE")}
    for name in ("note_read", "give_up"):
        monkeypatch.setattr(worker, name, lambda *_: None)
    monkeypatch.setattr(Job, "heed", lambda _: False)
    change(shop.registry, shop.job.name, wanted=wanted)
    worker.work(shop.job)
    assert shop.job.run.phase == phase
    left = {(found.sink, found.topic) for found in standing(shop.registry, "shop") if found.code == UNSWEPT}
    assert left == {("two", A)}


def test_a_run_that_is_being_ended_does_not_go_on_meanwhile(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands act upon it; whoever was first is done, and the other one is told so."""
    first = unfinished(shop, [A], ["one"])

    def meanwhile(*_: object) -> None:
        with pytest.raises(UsageError) as refused:
            start.resume(shop.context, first.id, sweep_many=True)
        assert refused.value.as_dict() == {
            "code": "RESNAPSHOT_OVER",
            "message": f"Run {first.id} is being aborted.",
            "hint": f"headrace resnapshot abort {first.id}",
        }

    monkeypatch.setattr(shadowing, "give_up", meanwhile)
    assert start.abort(shop.context, first.id).phase == "aborted"
    assert (now(shop, first).phase, now(shop, first).wanted) == ("aborted", "")


def test_a_run_that_has_just_gone_on_is_ended_by_who_works_on_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, known = unfinished(shop, [A], ["one"]), run_of

    def late(*found: Any) -> ResnapshotEntry:
        run = known(*found)
        monkeypatch.setattr(start, "run_of", known)
        start.resume(shop.context, run.id, sweep_many=True)
        return run

    monkeypatch.setattr(start, "run_of", late)
    run = start.abort(shop.context, first.id)
    assert (run.phase, run.wanted) == ("sweeping", "abort")


def test_a_run_that_could_not_be_ended_may_go_on(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    first = unfinished(shop, [A], ["one"])

    def busy(*_: object) -> None:
        raise SinkUnavailable("The engine has it.", code="SINK_BUSY")

    monkeypatch.setattr(shadowing, "give_up", busy)
    with pytest.raises(SinkUnavailable):
        start.abort(shop.context, first.id)
    assert start.resume(shop.context, first.id).phase == "sweeping"


def test_a_run_that_another_one_ends_does_not_go_on_meanwhile(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = unfinished(shop, [A], ["one"])
    later = shop.begin([A])

    def meanwhile(*_: object) -> None:
        with pytest.raises(UsageError):
            start.resume(shop.context, first.id, sweep_many=True)

    monkeypatch.setattr(reading, "give_up", meanwhile)
    reading.note_read(later)
    ended = now(shop, first)
    assert (ended.phase, ended.wanted) == ("aborted", "")
    with pytest.raises(UsageError, match="is aborted"):
        start.abort(shop.context, first.id)


@pytest.mark.parametrize("code", [SWEEP_LARGE, "RESNAPSHOT_INCOMPLETE"])
def test_an_abort_in_the_moment_in_which_a_run_comes_to_rest_ends_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    known = end

    def late(*told: Any) -> ResnapshotEntry:
        monkeypatch.setattr(worker, "end", known)
        start.abort(shop.context, shop.job.name)
        return known(*told)

    def fails(_: Job) -> None:
        raise SourceError("It comes to rest.", code=code)

    monkeypatch.setattr(worker, "end", late)
    monkeypatch.setattr(worker, "sweep", fails)
    for name in ("note_read", "give_up"):
        monkeypatch.setattr(worker, name, lambda *_: None)
    worker.work(shop.job)
    assert (shop.job.run.phase, shop.job.run.wanted) == ("aborted", "")


def test_who_works_on_a_run_that_is_over_changes_it_no_more(shop: Shop) -> None:
    end(shop.registry, shop.job.name, Phase.ABORTED)
    for phase in (Phase.SWEEPING, Phase.COMPLETED):
        with pytest.raises(UsageError) as refused:
            change(shop.registry, shop.job.name, phase=phase)
        assert refused.value.code == "RESNAPSHOT_OVER"
    assert shop.job.run.phase == "aborted"
