"""A sweep is done when nothing is left of what it was to remove, and not before."""

from __future__ import annotations

import fcntl
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.config.request import BEGUN, WAITED_FOR, Request
from headrace.control import desk as control_desk
from headrace.control.context import Context
from headrace.model.errors import SinkUnavailable
from headrace.model.position import Position
from headrace.model.schema import TableSchema
from sinks.base import REQUESTS
from sinks.memory import MemorySink
from spark_jobs import desk
from spark_jobs.desk import Desk
from spark_jobs.held import Holds, save_holds
from spark_jobs.ownership import Holding
from tests.support.patience import WAIT_S
from tests.support.small_table import SCHEMA, TABLE, TABLES, change, state
from tests.support.waiting import ended, until
from tests.unit.test_table_trouble import spec

REQUEST = Request(sweep={str(TABLE): [Position(1, 5).version]})


class Keeping(MemorySink):
    """A store from which nothing goes."""

    def truncate(self, schema: TableSchema, position: Position) -> int:
        del schema, position
        return 0


class Vanishing(MemorySink):
    """A store from which rows go by themselves, just before they are to be removed."""

    def truncate(self, schema: TableSchema, position: Position) -> int:
        super().truncate(schema, position)
        return 0


class Slow(MemorySink):
    """A store that removes rows only when it is told to go on."""

    goes_on = threading.Event()
    removing = threading.Event()

    def truncate(self, schema: TableSchema, position: Position) -> int:
        self.removing.set()
        assert self.goes_on.wait(WAIT_S)
        return super().truncate(schema, position)


def swept(
    kind: type[MemorySink], folder: Path, patch: pytest.MonkeyPatch
) -> tuple[MemorySink, dict[str, Any]]:
    """Ask for a sweep of one row of two; return the store and the answer."""
    sink, asked = desk_of(kind, folder, patch, threading.Lock())
    return sink, asked._answer(REQUEST)["swept"][str(TABLE)]


def desk_of(
    kind: type[MemorySink], folder: Path, patch: pytest.MonkeyPatch, turn: object
) -> tuple[MemorySink, Desk]:
    """Return a store of two rows, one of which is to go, and who carries out requests to it."""
    sink = kind("m", MemorySink.Config(store=folder.name))
    sink.prepare(SCHEMA)
    sink.apply(SCHEMA, [change(1, 1), change(9, 2)])
    sink.settle({("t", 0): 9})
    patch.setattr(desk, "sink_of", lambda _: (sink, TABLES))
    holding = type("Held", (), {"pipeline": lambda _: ""})()
    requests = folder / "requests" / "cache"
    requests.mkdir(parents=True)
    told, lock = spec(folder), cast("threading.Lock", turn)
    return sink, Desk(told, requests, lock, cast("Holding", holding), lambda _: None)


def test_a_sweep_that_leaves_rows_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SinkUnavailable) as caught:
        swept(Keeping, tmp_path, monkeypatch)
    assert caught.value.code == "SWEEP_INCOMPLETE"
    assert caught.value.table == TABLE
    made = MemorySink("m", MemorySink.Config(store=tmp_path.name))
    assert ("t", REQUESTS) not in made.progress(), "a store that holds no mark is swept again"
    noted: Any = json.loads((tmp_path / "checkpoint" / "requested.json").read_text())
    assert noted


class Turn:
    """The turn of a sink, which tells when somebody waits for it."""

    def __init__(self) -> None:
        self.lock, self.wanted = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        self.wanted.set()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@pytest.mark.parametrize("how", ["it is taken away", "whoever asked is killed"])
def test_what_is_withdrawn_while_a_batch_has_its_turn_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Whoever asked has been told that nothing is removed any more; or another has, of who was killed."""
    turn = Turn()
    sink, asked = desk_of(MemorySink, tmp_path, monkeypatch, turn)
    requests = tmp_path / "requests" / "cache"
    path = requests / "1.json"
    path.write_text(REQUEST.model_dump_json())
    with turn.lock:
        asked.tick()
        until(turn.wanted.is_set)
        if how == "it is taken away":
            path.unlink()
        else:
            path.with_suffix(WAITED_FOR).touch()  # and nobody has it locked
    assert asked._at_work is not None
    ended(asked._at_work)
    assert len(state(sink)) == 2
    assert list(requests.iterdir()) == []


def test_what_waits_while_the_sink_is_paused_is_left_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = Turn()
    sink, asked = desk_of(MemorySink, tmp_path, monkeypatch, turn)
    path = tmp_path / "requests" / "cache" / "1.json"
    path.write_text(REQUEST.model_dump_json())
    with turn.lock:
        asked.tick()
        until(turn.wanted.is_set)
        asked.close()
    assert asked._at_work is not None
    ended(asked._at_work)
    assert len(state(sink)) == 2
    assert path.exists(), "the query that is resumed carries it out"


def test_who_is_killed_while_a_sweep_is_done_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does who was killed when the answer was there, or before anything was asked."""
    sink, asked = desk_of(Slow, tmp_path, monkeypatch, threading.Lock())
    requests = tmp_path / "requests" / "cache"
    path = requests / "2.json"
    for earlier in ("0.answer", f"0{WAITED_FOR}", f"1{WAITED_FOR}"):
        (requests / earlier).touch()
    Slow.goes_on.clear()
    Slow.removing.clear()
    with path.with_suffix(WAITED_FOR).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path.write_text(REQUEST.model_dump_json())
        asked.tick()
        until(Slow.removing.is_set)
        assert path.with_suffix(BEGUN).exists()
    Slow.goes_on.set()
    assert asked._at_work is not None
    ended(asked._at_work)
    assert list(requests.iterdir()) == []
    assert state(sink).keys() == {"2"}


def test_a_sweep_that_is_begun_is_waited_for_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes: who left it then would not know how many rows it has removed."""
    _, asked = desk_of(Slow, tmp_path, monkeypatch, threading.Lock())
    folders = {name: tmp_path / name for name in ("requests", "pipelines", "progress")}
    context = cast("Context", type("Folders", (), folders))
    context.pipelines.mkdir()
    (context.pipelines / "cache.json").touch()
    Slow.goes_on.clear()
    now = [0.0]

    def sleep(_: float) -> None:
        if now[0]:
            Slow.goes_on.set()
            return
        asked.tick()
        until(lambda: list((context.requests / "cache").glob(f"*{BEGUN}")))
        now[0] = 1_000.0

    def heed() -> None:
        assert not now[0], "whoever goes then is not told what it does"

    asking = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep, time_ns=time.time_ns)
    monkeypatch.setattr(control_desk, "time", asking)
    monkeypatch.setattr(control_desk, "engine_state", lambda _: {"state": "ready"})
    told = control_desk.ask(context, "cache", REQUEST, timeout=600, heed=heed)
    assert told["swept"][str(TABLE)]["removed"] == 1
    assert asked._at_work is not None
    ended(asked._at_work)
    assert list((context.requests / "cache").iterdir()) == []


def test_a_row_whose_newer_change_was_refused_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not gone from the source, and what the store has of it is what people see."""
    folder = spec(tmp_path).checkpoint
    holds = Holds()
    holds.hold(str(TABLE), "1", Position(1, 7).version)
    save_holds(folder, holds)
    sink, told = swept(MemorySink, tmp_path, monkeypatch)
    assert (told["older"], told["kept"], told["removed"], told["refused"]) == (1, 1, 0, True)
    assert len(state(sink)) == 2


def test_rows_that_go_by_themselves_meanwhile_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, told = swept(Vanishing, tmp_path, monkeypatch)
    assert (told["older"], told["removed"], told["refused"]) == (1, 0, False)
    assert state(sink).keys() == {"2"}
    assert ("t", REQUESTS) in sink.progress()


def test_a_sweep_that_leaves_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, told = swept(MemorySink, tmp_path, monkeypatch)
    assert (told["older"], told["total"], told["removed"]) == (1, 2, 1)
    assert told["settled"] == [10]
    assert state(sink).keys() == {"2"}
