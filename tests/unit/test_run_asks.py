"""What a run asks the connector for, and stops: whoever asked may have died, rest, or be over."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.control.runs import asking, reading, start
from headrace.control.runs.job import Aborted, Job
from headrace.control.runs.repository import Phase, change, end, insert, run_of
from headrace.control.snapshot import Snapshot, SnapshotState
from headrace.model.errors import SourceError
from tests.unit.test_run_sweeping import A, Shop


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(tmp_path)
    monkeypatch.setattr(start, "hand_over", lambda *_: None)
    return made


class Database:
    """A database that hears orders to the connector, unless it is away."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.away = False

    def steer_snapshot(self, _: object, order: str, __: str) -> None:
        if self.away:
            raise SourceError("It does not answer.", code="SOURCE_UNREACHABLE")
        self.orders.append(order)

    def whole_rows(self, *_: object) -> None:
        """Tell nothing."""

    close = whole_rows


class Silent:
    """A connector of which nothing is heard."""

    def __init__(self, *_: object) -> None:
        """Hear nothing."""

    def incremental(self, _: str) -> Snapshot:
        return Snapshot(SnapshotState.RUNNING, {}, {})

    def busy(self) -> None:
        """Be at rest."""


@pytest.fixture
def database(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Database:
    made = Database()
    monkeypatch.setattr(reading, "source_of", lambda *_: made)
    monkeypatch.setattr(reading, "capture_of", lambda *_: None)
    monkeypatch.setattr(reading, "Told", Silent)
    monkeypatch.setattr(reading, "time", shop.time)
    shop.context.run.mkdir(parents=True, exist_ok=True)
    return made


def test_a_run_that_rests_while_the_database_does_not_answer_is_stopped_once_it_does(
    shop: Shop, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the connector reads to the end what somebody has asked it not to."""
    for name in ("_watch", "read_otherwise", "_key_is_back", "refuse_hidden"):
        monkeypatch.setattr(reading, name, lambda *_: False)
    change(shop.registry, shop.job.name, {"signal": "s", "asked": True, "ends": None}, phase=Phase.READING)
    start.pause(shop.context, shop.job.name)
    database.away = True
    for _ in range(2):
        with pytest.raises(SourceError):
            reading.read(shop.job)
    database.away = False
    shop.time.meanwhile = lambda: cast("None", start.abort(shop.context, shop.job.name))
    with pytest.raises(Aborted):
        reading.read(shop.job)
    assert database.orders == ["stop"], "once"
    assert shop.time.now > 0, "it rests until somebody has it go on"


def test_who_died_while_he_asked_asks_by_another_name(
    shop: Shop, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one name the connector hears one request only, and what was asked may be read otherwise by now."""
    asked = list[str]()

    def ask(job: Job, *_: object) -> None:
        asked.append(job.run.plan["signal"])
        raise Aborted

    monkeypatch.setattr(reading, "ask", ask)
    died = {"signal": "s", "asked": False, "stopping": True, "ends": None}
    change(shop.registry, shop.job.name, died, phase=Phase.READING)
    with pytest.raises(Aborted):
        reading.read(shop.job)
    assert (database.orders, len(asked)) == (["stop"], 1)
    assert "s" not in asked
    assert not shop.job.run.plan["stopping"]


def test_what_others_have_asked_is_stopped_before_a_run_asks(shop: Shop, database: Database) -> None:
    """One that rests asks anew when it goes on; one that goes on is waited for."""
    source, capture = cast("Any", database), cast("Any", None)
    plan = {"signal": "s", "asked": True, "ends": None}
    goes_on, rests, ends, over = (
        insert(shop.registry, "shop", [A], ["one"], queue=True, why="").id for _ in range(4)
    )
    for name in (goes_on, rests, ends, over):
        change(shop.registry, name, plan, phase=Phase.READING)
    asking._stop_others(shop.job, source, capture)
    assert database.orders == []
    start.pause(shop.context, rests)
    start.abort(shop.context, ends)
    end(shop.registry, over, Phase.FAILED)
    for _ in range(2):
        asking._stop_others(shop.job, source, capture)
        assert database.orders == ["stop"], "once"
    asked = [run_of(shop.registry, name).plan["asked"] for name in (goes_on, rests, ends, over)]
    assert asked == [True, False, False, False]


def test_a_run_that_is_to_rest_while_it_waits_to_ask_keeps_nobody_waiting(
    shop: Shop, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first load may take hours; nobody else would read before it is over."""
    monkeypatch.setattr(asking, "time", shop.time)
    monkeypatch.setattr(asking, "note_loaded", lambda *_: False)
    change(shop.registry, shop.job.name, {"marks": {}, "ends": None}, phase=Phase.READING)
    free = list[bool]()

    def look() -> None:
        with reading._lock_of(shop.job) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free.append(False)
            else:
                free.append(True)

    steps: Iterator[Callable[[], object]] = iter([
        lambda: start.pause(shop.context, shop.job.name),
        look,
        lambda: start.abort(shop.context, shop.job.name),
    ])  # fmt: skip
    shop.time.meanwhile = lambda: cast("None", next(steps)())
    with pytest.raises(Aborted):
        reading.read(shop.job)
    assert free == [True]
    assert not shop.job.run.plan.get("asked")
