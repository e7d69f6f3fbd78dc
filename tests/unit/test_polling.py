"""A query asks Kafka less often at rest, and as often as before once something comes."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyspark
import pytest

from spark_jobs import polling
from spark_jobs.polling import BRISK_MS, IDLE_MS, Polling


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def _query(set_long: Callable[[object, int], None]) -> Any:
    field = SimpleNamespace(setAccessible=lambda _: None, setLong=set_long)
    declared = {"pollingDelayMs": field}
    above = SimpleNamespace(getDeclaredField=declared.__getitem__)
    execution = SimpleNamespace(getClass=lambda: SimpleNamespace(getSuperclass=lambda: above))
    return SimpleNamespace(_jsq=SimpleNamespace(streamingQuery=lambda: execution))


def test_it_asks_less_often_at_rest_and_at_once_again_after_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, paces = _Clock(), list[int]()
    monkeypatch.setattr(polling, "time", clock)
    pace = Polling(cast("Any", _query(lambda _, ms: paces.append(ms))))
    for now, batch in ((0.0, None), (1.5, 1), (3.4, 1), (3.6, 1), (20.0, 1), (30.0, 2), (30.1, 2), (36.0, 2)):
        clock.now = now
        pace.tick(batch)
    assert paces == [IDLE_MS, BRISK_MS, IDLE_MS]


def test_a_spark_that_does_not_let_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object, __: int) -> None:
        raise ValueError("no\n such field")

    clock = _Clock()
    monkeypatch.setattr(polling, "time", clock)
    pace = Polling(_query(refuse))
    for clock.now, batch in ((1.0, 1), (4.0, 1), (5.0, 2), (9.0, 2)):
        pace.tick(batch)
    assert [record.message for record in caplog.records] == [
        f"a query asks Kafka every {BRISK_MS} ms, whatever it has to do: no such field"
    ]


def test_what_was_refused_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, refusals, paces = _Clock(), iter([True, False, True, False]), list[int]()

    def now_and_then(_: object, pace: int) -> None:
        if next(refusals):
            raise ValueError
        paces.append(pace)

    monkeypatch.setattr(polling, "time", clock)
    pace = Polling(_query(now_and_then))
    # The slow pace at the next rest, the quick one at the next tick.
    for clock.now, batch in ((3.0, None), (4.0, None), (5.0, 1), (8.0, 1), (9.0, 2), (9.1, 2)):
        pace.tick(batch)
    assert paces == [IDLE_MS, BRISK_MS]


def test_the_spark_of_this_environment_has_the_field() -> None:
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("spark-sql_2*.jar")
    execution = "org/apache/spark/sql/execution/streaming/runtime/"
    with zipfile.ZipFile(jar) as classes:
        assert b"pollingDelayMs" in classes.read(f"{execution}StreamExecution.class")
        assert f"{execution}StreamExecution".encode() in classes.read(f"{execution}MicroBatchExecution.class")
