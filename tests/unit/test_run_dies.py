"""What the process of a run that has died had done already is known to the one after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headrace.control.context import Context
from headrace.control.registry import SourceTableEntry
from headrace.control.runs import table_sweep
from headrace.control.runs.counted import NOTHING_GOES
from headrace.control.runs.job import Job
from headrace.control.runs.repository import change, count
from headrace.control.runs.sweeping import sweep
from headrace.control.sweeps import Found
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
