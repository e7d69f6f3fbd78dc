"""Which run reads a large table for the first time, what is said of it, and from where its rows count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.control import first_load
from headrace.control.adding import asked_sink
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, ResnapshotEntry, SinkEntry, SourceEntry
from headrace.control.runs.asking import first_marks
from headrace.control.runs.job import Job
from headrace.control.runs.reading import note_read
from headrace.control.runs.repository import Phase, all_of, change, end, insert, topics_of
from headrace.control.snapshot import Snapshot, SnapshotState
from headrace.control.verdicts import (
    FIRST_LOAD,
    LEFT_TO_RUN,
    RESTARTED,
    UNARRIVED,
    State,
    Verdict,
    healed,
    over,
    record,
    standing,
)
from headrace.model.errors import SourceError
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

TABLES = [TableId("public", "a"), TableId("public", "b")]
A, B = "shop.public.a", "shop.public.b"
LARGE = "the first load of large tables"
UNTOLD = Verdict(State.RESYNC_REQUIRED, "deletes were not told")


class OneTopic:
    """The ends of topics, as Kafka tells them."""

    def __init__(self, low: int = 0, high: int = 7) -> None:
        self.low, self.high = low, high

    def ends(self, names: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {(name, 0): (self.low, self.high) for name in names}

    @property
    def as_kafka(self) -> Kafka:
        return cast("Kafka", self)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "registry.db")
    schemas = [TableSchema(table, (Column("id", LogicalType.INT32),), ("id",)) for table in TABLES]
    with registry.begin() as session:
        session.add(source_entry("shop", schemas, loaded_ms=2))
    first_load.leave_to_run(registry, registry.source("shop"), TABLES)
    return registry


@pytest.fixture
def begin(registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return what the watcher does at each look; a run is begun in the registry only."""

    def started(
        _: Context,
        name: str,
        *,
        tables: Sequence[TableId],
        why: str,
        spare: bool,
        waits: bool,
        queue: bool = False,
    ) -> ResnapshotEntry:
        assert spare, "nobody has chosen these tables"
        assert not waits, "whoever looks has others to look at"
        return insert(registry, name, [f"shop.{table}" for table in tables], [], queue=False, why=why)

    monkeypatch.setattr(first_load, "start", started)
    monkeypatch.setattr(first_load, "there", lambda *_: True)
    monkeypatch.setattr(first_load, "capture_of", lambda *_: None)
    nowhere = cast("Context", tmp_path)
    return lambda: first_load.begin_runs(nowhere, registry, OneTopic().as_kafka, "shop")


def words(registry: Registry) -> dict[str, str]:
    return {found.topic: found.state for found in standing(registry, "shop")}


def test_one_run_reads_all_large_tables_and_is_begun_once(registry: Registry, begin: Any) -> None:
    begin()
    begin()
    (run,) = all_of(registry, "shop")
    assert topics_of(run) == {A, B}
    assert words(registry) == {A: "snapshotting", B: "snapshotting"}


def test_a_table_that_a_persons_run_leaves_out_has_a_run_of_its_own(registry: Registry, begin: Any) -> None:
    insert(registry, "shop", [A], [], queue=False, why="")
    begin()
    assert {frozenset(topics_of(run)) for run in all_of(registry, "shop")} == {frozenset({A}), frozenset({B})}


def test_a_run_of_one_table_takes_no_alarm_from_the_other(registry: Registry, begin: Any) -> None:
    begin()
    (run,) = all_of(registry, "shop")
    end(registry, run.id, Phase.ABORTED)
    begin()
    assert words(registry) == {A: "degraded", B: "degraded"}
    insert(registry, "shop", [A], [], queue=False, why="")
    begin()
    assert words(registry) == {A: "snapshotting", B: "degraded"}
    assert len(all_of(registry, "shop")) == 2


def test_a_run_that_is_paused_is_told_so_with_what_resumes_it(registry: Registry, begin: Any) -> None:
    begin()
    (run,) = all_of(registry, "shop")
    begin()
    reads = f"headrace resnapshot wait {run.id}"
    assert {(one.state, one.remedy) for one in standing(registry, "shop")} == {("snapshotting", reads)}
    change(registry, run.id, wanted="pause")
    begin()
    resumes = f"headrace resnapshot resume {run.id}"
    assert {(one.state, one.remedy) for one in standing(registry, "shop")} == {("paused", resumes)}


def test_a_run_that_looks_for_what_was_deleted_and_is_broken_off_is_told_so(
    registry: Registry, begin: Any
) -> None:
    source = registry.source("shop")
    for topic in (A, B):
        over(registry, "shop", topic, LEFT_TO_RUN)
    with registry.begin() as session:
        session.add(asked_sink("cache", "memory", "shop", {}, "lenient"))
    record(registry, source, [A], RESTARTED, Verdict(State.DEGRADED, "they are being looked for", "wait"))
    begin()
    (run,) = all_of(registry, "shop")
    end(registry, run.id, Phase.ABORTED)
    begin()
    (said,) = standing(registry, "shop")
    assert f"run {run.id}, which was to read them, is aborted" in said.reason


def test_a_table_that_was_taken_in_is_being_read_while_a_run_does(
    registry: Registry, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, command = registry.source("shop"), "headrace source tables add shop public.a"
    for topic in (A, B):
        over(registry, "shop", topic, LEFT_TO_RUN)
    former = insert(registry, "shop", [A], [], queue=False, why="the tables were taken in")
    end(registry, former.id, Phase.FAILED)
    record(registry, source, [A], FIRST_LOAD, first_load.being_taken_in(f"{command} public.b"))
    monkeypatch.setattr(first_load, "somebody_works", lambda *_: True)
    begin()
    assert words(registry) == {A: "snapshotting"}, "that run was of an earlier life of the table"
    monkeypatch.setattr(first_load, "somebody_works", lambda *_: False)
    begin()
    assert words(registry) == {A: "degraded"}, "the command has died before it began a run"
    for phase in (Phase.ABORTED, Phase.FAILED):
        run = insert(registry, "shop", [A, B], [], queue=False, why="the tables were taken in")
        begin()
        assert words(registry) == {A: "snapshotting"}
        end(registry, run.id, phase)
        begin()
        (said,) = standing(registry, "shop")
        assert (said.state, said.remedy) == ("degraded", command)
        assert f"run {run.id}, which was to read them, is {phase.value}" in said.reason


def test_what_a_run_has_said_of_a_table_that_it_left_out_stands(
    registry: Registry, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = registry.source("shop")
    monkeypatch.setattr(first_load, "somebody_works", lambda *_: False)
    for topic in (A, B):
        over(registry, "shop", topic, LEFT_TO_RUN)
    record(registry, source, [A], FIRST_LOAD, Verdict(State.RESYNC_REQUIRED, "a key of arrays", "recover"))
    run = insert(registry, "shop", [], [], queue=False, why="the tables were taken in")
    change(registry, run.id, {"left_out": {"public.a": "a key of arrays"}}, phase=Phase.COMPLETED)
    begin()
    assert [found.remedy for found in standing(registry, "shop")] == ["recover"]


def test_rows_count_from_the_beginning_only_where_nothing_before_the_run_is_lost(registry: Registry) -> None:
    def marks(kafka: OneTopic) -> list[int]:
        run = insert(registry, "shop", [A], [], queue=True, why=LARGE)
        job = Job(cast("Context", None), run.id, registry, kafka.as_kafka)
        return first_marks(job, registry.source("shop").tables[0])

    assert marks(OneTopic()) == [0]
    assert marks(OneTopic(low=3)) == [7], "Kafka has lost the first changes"
    record(registry, registry.source("shop"), [A], "TABLE_UNPUBLISHED", UNTOLD)
    assert marks(OneTopic()) == [7]


@pytest.mark.parametrize("served", [False, True])
def test_who_waits_for_a_first_load_is_told_what_has_not_arrived(
    registry: Registry, tmp_path: Path, served: bool
) -> None:
    """Without a sink nobody else would say so; what is read anew then is right for sinks that come later."""
    source, where = (
        registry.source("shop"),
        cast("Context", SimpleNamespace(registry=tmp_path / "registry.db")),
    )
    for topic in (A, B):
        over(registry, "shop", topic, LEFT_TO_RUN)
    first_load.wait_loaded(where, "shop", lambda _: None)
    why = "the connector has read 3 rows of it, and 2 records have come into its topic"
    command = "headrace resnapshot shop public.b"
    record(registry, source, [B], UNARRIVED, Verdict(State.RESYNC_REQUIRED, why, command))
    with pytest.raises(SourceError) as told:
        first_load.wait_loaded(where, "shop", lambda _: None)
    assert (told.value.code, told.value.hint) == ("FIRST_LOAD_UNARRIVED", command)
    assert f"public.b: {why}" in told.value.message
    assert "public.a" not in told.value.message
    with registry.begin() as session:
        fields: dict[str, Any] = {"settings": {}, "incomplete": {}, "incomplete_ms": {}, "created_ms": 1}
        mine: dict[str, Any] = {B if served else A: {}}
        session.add(SinkEntry(name="one", kind="memory", source="shop", tables=mine, **fields))
    run = insert(registry, "shop", [B], [], queue=False, why="")
    change(registry, run.id, {"ends": {B: [3]}}, phase=Phase.APPLYING, begun_ms=registry.moment("shop"))
    note_read(Job(where, run.id, registry, OneTopic().as_kafka))
    assert bool(standing(registry, "shop")) is served, "a sink that is there has to be swept first"


@pytest.mark.parametrize("step", range(8))
def test_who_finds_a_first_load_ended_beside_another_says_nothing_that_is_healed_since(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Two processes look; at each step of one the other does all of it, and a run heals what it has noted."""
    told = Snapshot(SnapshotState.COMPLETED, {"public.a": 9, "public.b": 7}, {}, attempts=2)
    monkeypatch.setattr(first_load, "initial", lambda *_: told)
    for topic in (A, B):
        over(registry, "shop", topic, LEFT_TO_RUN)
    with registry.begin() as session:
        session.get_one(SourceEntry, "shop").loaded_ms = None
    entry, kafka, nothing = registry.source("shop"), OneTopic().as_kafka, cast("Any", None)

    class Slow(Registry):
        left = 1_000

        @contextmanager
        def begin(self) -> Iterator[Any]:
            self.comes_between()
            with super().begin() as session:
                yield session

        @contextmanager
        def reading(self) -> Iterator[Any]:
            self.comes_between()
            with super().reading() as session:
                yield session

        def comes_between(self) -> None:
            self.left -= 1
            if self.left == 0:
                assert first_load.note_loaded(registry, kafka, nothing, entry)
                assert {found.code for found in standing(registry, "shop")} == {RESTARTED, UNARRIVED}
                for topic in (A, B):
                    healed(registry, "shop", topic, "", 2**53)

    slow = Slow(tmp_path / "registry.db")
    slow.left = step + 1
    assert first_load.note_loaded(slow, kafka, nothing, entry)
    if slow.left <= 0:
        assert standing(registry, "shop") == []
    else:
        assert step > 4, "the other has not come between"


class _Worker:
    """A connector whose task was stopped, or that streams; it says what it was told."""

    def __init__(self, state: str) -> None:
        self.at, self.told = state, list[str]()
        self.dies = False

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None: ...

    def state(self, name: str) -> Any:
        return SimpleNamespace(connector=self.at)

    def halt(self, name: str, *, again: str) -> None:
        self.at = "STOPPED"
        self.told.append("halt")
        if self.dies:
            raise KeyboardInterrupt

    def resume(self, name: str) -> None:
        self.at = "RUNNING"
        self.told.append("resume")


def _unloaded(
    registry: Registry, context: Context, monkeypatch: pytest.MonkeyPatch
) -> tuple[_Worker, Callable[[], bool]]:
    """Return the worker of a source that is not loaded, and what a look at it does."""
    worker, kafka = _Worker("RUNNING"), OneTopic()
    with registry.begin() as session:
        session.get_one(SourceEntry, "shop").loaded_ms = None
    capture = SimpleNamespace(connector="c", notifications="n")
    monkeypatch.setattr(first_load, "capture_of", lambda *_: capture)
    monkeypatch.setattr(first_load, "Connect", lambda _: worker)
    monkeypatch.setattr(kafka, "committed", lambda *_: ([], 9), raising=False)
    context.run.mkdir(parents=True)
    return worker, lambda: first_load.read_again(context, registry, kafka.as_kafka, "shop")


def test_a_load_that_was_to_be_begun_again_is_so_after_a_kill(
    registry: Registry, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connector rests then, and nobody has paused it."""
    worker, again = _unloaded(registry, context, monkeypatch)
    monkeypatch.setattr(first_load, "_is_passed_over", lambda *_: worker.told == [])
    worker.dies = True
    with pytest.raises(KeyboardInterrupt):
        again()
    worker.dies = False
    assert again()
    assert (worker.at, worker.told) == ("RUNNING", ["halt", "halt", "resume"])
    worker.at = "STOPPED"
    assert not again(), "somebody else has stopped it"


def test_a_load_that_somebody_had_go_on_after_a_kill_is_looked_through(
    registry: Registry, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was told before, and was deleted before it went on, is left in the stores."""
    worker, again = _unloaded(registry, context, monkeypatch)
    monkeypatch.setattr(first_load, "_is_passed_over", lambda *_: False)
    (context.run / "load-shop.lock").write_text(str(registry.source("shop").created_ms))
    for worker.at in ("UNASSIGNED", "ABSENT"):
        assert not again(), "it is being started"
    assert not [found for found in standing(registry, "shop") if found.code == RESTARTED]
    worker.at = "RUNNING"
    assert not again()
    assert {found.topic for found in standing(registry, "shop") if found.code == RESTARTED} == {A, B}
    worker.at = "STOPPED"
    assert not again(), "it is somebody else who stops it now"
    assert worker.told == []
