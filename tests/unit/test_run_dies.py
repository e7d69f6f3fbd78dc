"""What the process of a run that has died had done already is known to the one after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headrace.control.context import Context
from headrace.control.registry import SourceTableEntry
from headrace.control.runs import table_sweep, worker
from headrace.control.runs.counted import NOTHING_GOES
from headrace.control.runs.job import Job
from headrace.control.runs.repository import UNSWEPT, Phase, change, count
from headrace.control.runs.sweeping import leave_unswept, sweep
from headrace.control.runs.wishes import go_on
from headrace.control.sweeps import ROWS_BEHIND, Found
from headrace.control.verdicts import standing
from headrace.model.errors import SinkError
from tests.unit.test_run_sweeping import A, B, C, Shop, swept_here


class Killed(BaseException):
    """What nobody catches."""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    swept_here(shop, monkeypatch)
    shop.settle("one", A, B, C)
    shop.settle("two", A, B, C)
    return shop


def dies(shop: Shop) -> Job:
    """Have the process of the shop's run die; return the run as the next process knows it."""
    with pytest.raises(Killed):
        sweep(shop.job)
    return Job(shop.context, shop.job.name, shop.registry, shop.job.kafka)


def test_rows_that_were_removed_by_who_died_then_are_counted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: set[tuple[str, str]] = set()

    def ask_sweep(
        _: Context,
        sink: str,
        table: SourceTableEntry,
        marks: Sequence[int],
        limit: object,
        heed: Callable[[], object],
    ) -> Found:
        del marks, heed
        older = 0 if (sink, table.topic) in gone else 3
        if limit == NOTHING_GOES:
            return Found(older, 9, 0, older > 0, (10,))
        gone.add((sink, table.topic))
        if len(gone) == 2:
            raise Killed
        return Found(older, 9, older, False, (10,))

    monkeypatch.setattr(table_sweep, "ask_sweep", ask_sweep)
    sweep(dies(shop))
    swept = {"public.a": 3, "public.b": 3, "public.c": 3}
    assert shop.job.run.counts["swept"] == {"one": swept, "two": swept}


def test_rows_that_were_not_removed_by_who_asked_are_not_counted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More would have gone than is allowed; then they went by themselves."""
    answers = [
        Found(300, 400, 0, refused=True, settled=(10,)),
        Found(300, 400, 0, refused=True, settled=(10,)),
    ]
    nothing = Found(0, 100, 0, refused=False, settled=(10,))
    monkeypatch.setattr(table_sweep, "ask_sweep", lambda *_: answers.pop() if answers else nothing)
    with pytest.raises(Exception, match="would remove"):
        sweep(shop.job)
    change(shop.registry, shop.job.name, {"sweep_many": True})
    sweep(shop.job)
    assert shop.job.run.counts["swept"]["one"] == {"public.a": 0, "public.b": 0, "public.c": 0}


def test_what_has_arrived_is_counted_once_whenever_a_process_dies(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = list[object]()

    def dies_after(*args: object, **named: object) -> None:
        count(*args, **named)  # type: ignore[arg-type]
        counted.append(args)
        if len(counted) == 1:
            raise Killed

    monkeypatch.setattr(table_sweep, "count", dies_after)
    sweep(dies(shop))
    assert shop.job.run.counts["written"] == {"one": 15, "two": 15}


def test_what_the_one_that_died_waited_for_is_not_said_any_more(shop: Shop) -> None:
    change(shop.registry, shop.job.name, reason="waits until the initial snapshot is complete")
    shop.job.say("")
    assert shop.job.run.reason == ""


def said(shop: Shop) -> set[tuple[str, str]]:
    """Return sink and topic of what stands as read and not swept."""
    return {(found.sink, found.topic) for found in standing(shop.registry, "shop") if found.code == UNSWEPT}


def test_what_a_run_had_said_at_its_end_is_over_when_it_goes_on_and_sweeps(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has failed in its sweep, and its process is killed before that is noted of the run itself."""

    def killed(*_: object) -> None:
        raise Killed

    shop.refuses = {("one", A): SinkError("A field is of another type.", code="ES_MAPPING_CONFLICT")}
    with monkeypatch.context() as once:
        once.setattr(worker, "give_up", killed)
        with pytest.raises(Killed):
            worker.work(shop.job)
    assert said(shop) == {("one", A)}
    shop.refuses = {}
    worker.work(Job(shop.context, shop.job.name, shop.registry, shop.job.kafka))
    assert shop.job.run.phase == "completed"
    assert standing(shop.registry, "shop") == []


def test_what_another_run_has_left_unswept_stays_so(shop: Shop) -> None:
    change(shop.registry, shop.job.name, phase=Phase.UNFINISHED)
    other = shop.begin([B], mark=20)
    leave_unswept(other, "was aborted")
    change(shop.registry, other.name, phase=Phase.ABORTED)
    go_on(shop.registry, shop.job.name, sweep_many=False)
    worker.work(shop.job)
    assert said(shop) == {("one", B), ("two", B)}


def test_rows_that_a_sink_has_refused_are_told_until_a_run_has_swept(shop: Shop) -> None:
    shop.settle("one", A, B, C)
    shop.settle("two", A, B, C)
    shop.refuses = {("one", A): SinkError("It has refused the newest change of a row.", code=ROWS_BEHIND)}
    for _ in range(2):
        with pytest.raises(SinkError):
            sweep(shop.job)
        told = [found for found in standing(shop.registry, "shop") if found.code == ROWS_BEHIND]
        assert [(one.sink, one.topic, one.state) for one in told] == [("one", A, "degraded")]
    shop.refuses = {}
    sweep(shop.job)
    assert not shop.wrong
