"""A sink that is told to rest does so: nobody of it writes when that is said, and nobody begins to later."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.config.pipeline import PipelineSpec, write_private
from headrace.config.request import Request
from spark_jobs import batch
from spark_jobs.batch import Batches
from spark_jobs.desk import Desk
from spark_jobs.ownership import Holding
from spark_jobs.progress import Progress
from spark_jobs.ranges import Ended
from spark_jobs.watch import Watch, _Running, _stop
from tests.support.waiting import ended
from tests.unit.test_engine_files import log, spec


class _Untouched:
    """Fails whoever asks it for anything."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"it asked for {name}")


def running(told: PipelineSpec, turn: threading.Lock, folder: Path) -> _Running:
    holding = cast("Holding", _Untouched())
    progress = Progress(folder / "progress.json", told)
    batches = Batches(told, progress, turn, holding)
    desk = Desk(told, folder / "requests", turn, holding, batches.requested)
    return _Running((0, 0), told, progress, batches, desk)


def test_it_is_said_when_nobody_of_the_sink_writes_any_more(tmp_path: Path) -> None:
    turn = threading.Lock()
    sink = running(spec(tmp_path), turn, tmp_path)
    ending = threading.Thread(target=_stop, args=(sink, turn, "paused"))
    with turn:  # a look, say, that is filling the store again
        ending.start()
        ending.join(0.3)
        assert sink.progress.current == "starting"
    ended(ending)
    assert sink.progress.current == "paused"


def test_a_batch_that_waited_meanwhile_writes_nothing(tmp_path: Path) -> None:
    told, turn = spec(tmp_path), threading.Lock()
    told.checkpoint.mkdir()
    log(told.checkpoint, 0, {"shop.public.t": {"0": 3}})
    sink = running(told, turn, tmp_path)
    sink.batches.close()
    frame: Any = type("Frame", (), {"sparkSession": None})
    with pytest.raises(Ended):
        sink.batches.run(frame, 0)
    sink.batches.look(frame.sparkSession)
    assert sink.progress.current == "starting"
    assert sink.batches.proven == 0


def test_who_is_never_idle_is_tidied_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = spec(tmp_path)
    told.checkpoint.mkdir()
    log(told.checkpoint, 0, {"shop.public.t": {"0": 3}})
    tidied: list[float] = []
    monkeypatch.setattr(batch, "sink_of", lambda _: (SimpleNamespace(maintain=tidied.append), None))
    monkeypatch.setattr(Batches, "_attempt", lambda *_: 0.0)
    holding = cast("Holding", SimpleNamespace(pipeline=str))
    batches = Batches(told, Progress(tmp_path / "progress.json", told), threading.Lock(), holding)
    frame: Any = type("Frame", (), {"sparkSession": None})
    for _ in range(3):  # without a look between them
        batches.run(frame, 0)
    assert len(tidied) == 1


@pytest.mark.parametrize("content", ["{", None], ids=["damaged", "unreadable"])
def test_a_file_that_could_not_be_taken_up_and_is_taken_away_is_over(
    tmp_path: Path, content: str | None
) -> None:
    """Who removes the sink waits for that word."""
    rooms = {name: tmp_path / name for name in ("pipelines", "progress", "requests")}
    for room in rooms.values():
        room.mkdir()
    pipeline, progress = (rooms[name] / "cache.json" for name in ("pipelines", "progress"))
    progress.write_text('{"state": "running"}')
    watch = Watch(cast("Any", None), cast("Any", SimpleNamespace(**rooms)))
    if content is None:
        pipeline.mkdir()  # as one that belongs to another account
    else:
        pipeline.write_text(content)
    watch.tick()
    assert json.loads(progress.read_text())["state"] == "failed"
    pipeline.rmdir() if content is None else pipeline.unlink()
    watch.tick()
    assert json.loads(progress.read_text())["state"] == "removed"


@pytest.mark.parametrize(
    "now", [{"paused": True}, {"withheld": True}, None], ids=["paused", "withheld", "gone"]
)
def test_no_request_is_begun_once_the_file_says_that_the_sink_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: dict[str, bool] | None
) -> None:
    """Also before the engine has noticed."""
    rooms = {name: tmp_path / name for name in ("pipelines", "progress", "requests")}
    for room in (*rooms.values(), rooms["requests"] / "cache"):
        room.mkdir()
    told, path = spec(tmp_path), rooms["pipelines"] / "cache.json"
    write_private(path, told.model_dump_json())
    watch = Watch(cast("Any", None), cast("Any", SimpleNamespace(**rooms)))
    loaded = watch._load(path, (0, 0))
    answered: list[Request] = []

    def answer(request: Request) -> dict[str, Any]:
        answered.append(request)
        return {}

    monkeypatch.setattr(loaded.desk, "_answer", answer)
    asked = rooms["requests"] / "cache" / "1.json"

    def ask() -> None:
        asked.write_text(Request(sweep={"public.t": [1]}).model_dump_json())
        loaded.desk.tick()
        assert loaded.desk._at_work is not None
        ended(loaded.desk._at_work)

    ask()
    assert (len(answered), asked.exists()) == (1, False)
    if now is None:
        path.unlink()
    else:
        write_private(path, told.model_copy(update=now).model_dump_json())
    ask()
    assert (len(answered), asked.exists()) == (1, True), "it is left to the query that runs again"
