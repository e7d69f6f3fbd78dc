"""A run sweeps and heals each table as soon as its sink has applied it, whatever keeps the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.config.pipeline import PipelineSpec, Swept, TableSpec, load_pipeline, write_private
from headrace.config.request import Request
from headrace.control import desk
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.pipelines import rewrite, spec_path
from headrace.control.registry import Registry, SinkEntry, SourceTableEntry, now_ms
from headrace.control.runs import sweeping, table_sweep
from headrace.control.runs.counted import NOTHING_GOES
from headrace.control.runs.job import Aborted, Job, Paused
from headrace.control.runs.passed import reread
from headrace.control.runs.repository import SWEEP_LARGE, UNSWEPT, Phase, change, count, insert, topics_left
from headrace.control.runs.sweeping import leave_unswept, sweep
from headrace.control.runs.wishes import go_on
from headrace.control.sweeps import Found
from headrace.control.verdicts import State, Verdict, record, standing
from headrace.model.errors import HeadraceError, SinkError, UsageError
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

A, B, C = topics = [f"shop.public.{name}" for name in "abc"]
WRONG = Verdict(State.RESYNC_REQUIRED, "changes were lost")
BLOCKED = {"code": "ES_REFUSES", "state": "degraded", "message": "The index is read-only.", "hint": ""}
DONE = Found(older=1, total=9, removed=1, refused=False, settled=(10,))


class Time:
    """A clock that only sleeping moves; at each sleep somebody may do something."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert self.now < 60, "the run goes on for ever"
        self.now += seconds
        self.meanwhile()


class Shop:
    """A source of three tables, the sinks ``one`` and ``two``, and a run that has read all of it.

    What the engine would do is played: tables are settled by :meth:`settle`, and sweeps noted in ``asked``.
    """

    def __init__(self, home: Path) -> None:
        names = ("pipelines", "progress", "requests", "run", "checkpoints", "owners", "dead_letters")
        paths = {name: home / name for name in names} | {"registry": home / "registry.db"}
        self.context = cast("Context", type("Folders", (), paths))
        self.registry = Registry(home / "registry.db")
        self.time = Time()
        self.asked: list[tuple[str, str]] = []
        self.refuses: dict[tuple[str, str], HeadraceError] = {}
        self.many: set[tuple[str, str]] = set()
        self.told: list[dict[str, Any]] = []
        self.before_answer: Callable[[], None] = lambda: None
        columns = (Column("id", LogicalType.INT32),)
        schemas = [TableSchema(TableId("public", name), columns, ("id",)) for name in "abc"]
        with self.registry.begin() as session:
            session.add(source_entry("shop", schemas, loaded_ms=2))
            session.flush()
            for name in ("one", "two"):
                session.add(_sink(name))
        for name in ("one", "two"):
            _write_pipeline(self.context, name, self.registry.source("shop").tables)
            self.settle(name)
        record(self.registry, self.registry.source("shop"), topics, "TABLE_UNPUBLISHED", WRONG)
        self.job = self.begin(topics)

    def begin(self, mine: Sequence[str], *, mark: int = 5) -> Job:
        run = insert(self.registry, "shop", mine, ["one", "two"], queue=False, why="")
        plan = {"marks": {topic: [mark] for topic in mine}, "ends": {topic: [mark + 5] for topic in mine}}
        change(self.registry, run.id, plan, phase=Phase.APPLYING, begun_ms=now_ms() + 1)
        return Job(self.context, run.id, self.registry, cast("Kafka", None))

    def settle(self, sink: str, *settled: str, trouble: Mapping[str, Any] | None = None) -> None:
        """Have a sink's engine say which tables it has applied, and what keeps it from the others."""
        kept = {} if trouble is None else {"trouble": trouble}
        told = {
            "state": "running",
            "updated_ms": 1,
            "offsets": {topic: {"0": 10 if topic in settled else 7} for topic in topics},
            "tables": {topic.partition(".")[2]: kept for topic in topics if topic not in settled},
        }
        write_private(self.context.progress / f"{sink}.json", json.dumps(told))

    def ask_sweep(
        self,
        _: Context,
        sink: str,
        table: SourceTableEntry,
        marks: Sequence[int],
        limit: object,
        heed: Callable[[], object],
    ) -> Found:
        self.before_answer()
        heed()
        if limit == NOTHING_GOES:  # it is asked once more where there is something to remove
            self.asked.append((sink, table.topic))
        if error := self.refuses.get((sink, table.topic)):
            raise error
        return replace(DONE, refused=limit is not None and (sink, table.topic) in self.many)

    def tell(self, context: Context, sink: str, to: Callable[[PipelineSpec], Mapping[str, Any]]) -> None:
        rewrite(context, sink, to)
        self.told.append({sink: sorted(load_pipeline(spec_path(context, sink)).swept)})

    @property
    def swept(self) -> dict[str, list[str]]:
        """Sink → tables of the run that are swept there."""
        return {sink: sorted(tables) for sink, tables in self.job.run.counts.get("swept", {}).items()}

    @property
    def wrong(self) -> set[str]:
        """Which tables a verdict stands upon."""
        return {found.topic for found in standing(self.registry, "shop")}


def _sink(name: str) -> SinkEntry:
    kept: dict[str, Any] = {topic: {} for topic in topics}
    return SinkEntry(
        name=name,
        kind="memory",
        source="shop",
        settings={},
        tables=kept,
        incomplete={},
        incomplete_ms={},
        created_ms=1,
    )


def _write_pipeline(context: Context, name: str, tables: Iterable[SourceTableEntry]) -> None:
    folder = context.run
    spec = PipelineSpec(
        sink=name,
        kind="memory",
        settings={},
        source="shop",
        kafka_bootstrap="nowhere",
        placeholder="p",
        tables=tuple(TableSpec(topic=table.topic, epoch=1, table=table.table) for table in tables),
        checkpoint=folder,
        dead_letters=folder,
        owner=folder / "owner",
        home="h",
    )
    write_private(spec_path(context, name), spec.model_dump_json())


def swept_here(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the shop answer for its sinks, and no time pass."""
    monkeypatch.setattr(sweeping, "time", shop.time)
    monkeypatch.setattr(sweeping, "refuse_hidden", lambda _: None)
    monkeypatch.setattr(table_sweep, "ask_sweep", shop.ask_sweep)
    monkeypatch.setattr(table_sweep, "refuse_unseen", lambda *_: None)
    monkeypatch.setattr(table_sweep, "rewrite", shop.tell)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    swept_here(shop, monkeypatch)
    return shop


def test_a_table_in_trouble_keeps_no_other_from_being_swept_and_healed(shop: Shop) -> None:
    shop.settle("one", A, B, C)
    shop.settle("two", A, C, trouble=BLOCKED)

    def meanwhile() -> None:
        if shop.time.now < 8:
            assert shop.swept == {
                "one": ["public.a", "public.b", "public.c"],
                "two": ["public.a", "public.c"],
            }
            assert shop.wrong == {B}
            waits = "two: public.b, 3 records to apply before the sweep: The index is read-only. (ES_REFUSES)"
            assert (shop.job.run.reason, shop.job.run.phase) == (waits, "applying")
        else:
            assert shop.told == [{"one": topics}, {"two": [A, C]}], "the query of two was not begun for each"
            shop.settle("two", A, B, C)

    shop.time.meanwhile = meanwhile
    sweep(shop.job)
    assert not shop.wrong
    assert shop.told[2:] == [{"two": topics}]
    assert sorted(shop.asked) == sorted((sink, topic) for sink in ("one", "two") for topic in topics)


def test_tables_that_are_ready_one_after_the_other_are_told_at_once(shop: Shop) -> None:
    shop.settle("one", A, B, C)
    shop.time.meanwhile = lambda: shop.settle("two", *topics[: int(shop.time.now)])
    sweep(shop.job)
    assert shop.told == [{"one": topics}, {"two": topics}]


def test_an_abort_leaves_only_what_was_not_swept(shop: Shop) -> None:
    shop.settle("one", A, B, C)
    shop.settle("two", A)
    shop.time.meanwhile = lambda: cast("None", change(shop.registry, shop.job.name, wanted="abort"))
    with pytest.raises(Aborted):
        sweep(shop.job)
    assert shop.told == [{"one": topics}, {"two": [A]}], "what is swept is told, though the run ends"
    leave_unswept(shop.job, "was aborted")
    left = {(found.sink, found.topic) for found in standing(shop.registry, "shop") if found.code == UNSWEPT}
    assert left == {("two", B), ("two", C)}
    change(shop.registry, shop.job.name, phase=Phase.ABORTED)
    assert reread(shop.registry, "shop") == {topic: ([5], [10]) for topic in topics}, "all were swept at one"


def test_what_a_run_had_swept_before_it_failed_is_known_to_sinks_that_come_later(shop: Shop) -> None:
    count(shop.registry, shop.job.name, "one", swept={"public.a": 3})
    change(shop.registry, shop.job.name, phase=Phase.FAILED)
    assert reread(shop.registry, "shop") == {A: ([5], [10])}
    go_on(shop.registry, shop.job.name, sweep_many=False)
    change(shop.registry, shop.job.name, phase=Phase.ABORTED, counts={})
    assert reread(shop.registry, "shop") == {A: ([5], [10])}
    shop.begin([A], mark=20)
    assert reread(shop.registry, "shop")[A] == ([20], [25])


def test_an_abort_is_heeded_while_a_store_does_not_come_to_a_sweep(shop: Shop) -> None:
    shop.settle("one", A, B, C)
    shop.before_answer = lambda: cast("None", change(shop.registry, shop.job.name, wanted="abort"))
    with pytest.raises(Aborted):
        sweep(shop.job)
    assert not shop.swept


def test_a_pause_is_heeded_while_a_store_does_not_come_to_a_sweep(shop: Shop) -> None:
    shop.settle("one", A, B, C)
    shop.settle("two", A, B, C)
    shop.before_answer = lambda: cast("None", change(shop.registry, shop.job.name, wanted="pause"))

    def meanwhile() -> None:
        assert not shop.swept or shop.time.now > 3
        if shop.time.now > 3:
            shop.before_answer = lambda: None
            change(shop.registry, shop.job.name, wanted="")

    shop.time.meanwhile = meanwhile
    sweep(shop.job)
    assert not shop.wrong


def test_a_request_that_nobody_waits_for_any_more_is_withdrawn(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "engine_state", lambda _: {"state": "ready"})
    change(shop.registry, shop.job.name, wanted="pause")
    with pytest.raises(Paused):
        desk.ask(shop.context, "one", Request(), heed=shop.job.refuse_rest)
    assert not list((shop.context.requests / "one").glob("*"))


def test_who_is_interrupted_withdraws_what_it_has_asked_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(desk, "engine_state", lambda _: {"state": "ready"})
    monkeypatch.setattr("headrace.control.desk.time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        desk.ask(shop.context, "one", Request())
    assert not list((shop.context.requests / "one").glob("*"))


def test_a_store_that_does_not_sweep_one_table_sweeps_the_others(shop: Shop) -> None:
    shop.settle("one", A, B, C)
    shop.settle("two", A, B, C)
    shop.refuses = {
        ("one", A): SinkError("The index is closed.", code="ES_REFUSES"),
        ("two", A): SinkError("Sink two did not come to it.", code="SINK_BUSY"),
    }

    def meanwhile() -> None:
        if shop.time.now < 5:
            assert shop.swept == {"one": ["public.b", "public.c"]}
            assert "one: public.a, to be swept: The index is closed. (ES_REFUSES)" in shop.job.run.reason
        else:
            shop.refuses = {}

    shop.time.meanwhile = meanwhile
    sweep(shop.job)
    assert not shop.wrong
    assert shop.asked.count(("one", A)) <= 5, "ever more rarely"


@pytest.mark.parametrize("code", ["ES_MAPPING_CONFLICT", "RESNAPSHOT_SWEEP_LARGE"])
def test_what_is_not_tried_again_ends_the_run_when_all_else_is_swept(shop: Shop, code: str) -> None:
    shop.settle("one", A, B, C)
    shop.settle("two", A, B, trouble=BLOCKED)
    if code == "RESNAPSHOT_SWEEP_LARGE":
        shop.many = {("one", A)}
    else:
        shop.refuses = {("one", A): SinkError("A field is of another type.", code=code)}

    def meanwhile() -> None:
        assert code in shop.job.run.reason
        if shop.time.now > 3:
            shop.settle("two", A, B, C)

    shop.time.meanwhile = meanwhile
    with pytest.raises((SinkError, UsageError)) as ended:
        sweep(shop.job)
    assert ended.value.code == code
    assert shop.swept == {"one": ["public.b", "public.c"], "two": ["public.a", "public.b", "public.c"]}
    assert shop.asked.count(("one", A)) == 1


def test_a_shadow_that_cannot_be_made_is_not_swept(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise SinkError("A field is of another type.", code="ES_MAPPING_CONFLICT")

    monkeypatch.setattr(sweeping, "fill", fill)
    change(shop.registry, shop.job.name, {"shadows": {"one": [A]}})
    shop.settle("one", A, B, C)
    shop.settle("two", A, B, C)
    with pytest.raises(SinkError) as ended:
        sweep(shop.job)
    assert ended.value.code == "ES_MAPPING_CONFLICT"
    assert shop.asked == [("one", B), ("one", C), ("two", A), ("two", B), ("two", C)]


def test_a_run_that_is_aborted_names_what_goes_on_with_a_sweep_that_was_too_large(shop: Shop) -> None:
    shop.settle("one", A, B, C)
    shop.many = {("one", A)}
    shop.time.meanwhile = lambda: cast("None", change(shop.registry, shop.job.name, wanted="abort"))
    with pytest.raises(Aborted):
        sweep(shop.job)
    leave_unswept(shop.job, "was aborted")
    (large,) = (found for found in standing(shop.registry, "shop") if found.code == SWEEP_LARGE)
    assert large.remedy == "headrace resnapshot shop public.a --sweep-many"


def test_a_person_allows_a_large_sweep_while_the_run_waits_for_another_table(shop: Shop) -> None:
    shop.settle("one", A, B, C)
    shop.settle("two", A, B)
    shop.many = {("one", A)}

    def meanwhile() -> None:
        change(shop.registry, shop.job.name, {"sweep_many": True})
        if "public.a" in shop.swept["one"]:
            shop.settle("two", A, B, C)

    shop.time.meanwhile = meanwhile
    sweep(shop.job)
    assert not shop.wrong


def test_who_takes_a_run_up_again_tells_what_was_swept_before_and_no_older_marks(shop: Shop) -> None:
    count(shop.registry, shop.job.name, "one", swept={"public.a": 0, "public.b": 0})
    shop.settle("one", A, B, C)
    shop.settle("two", A, B, C)
    later = {A: Swept(marks=(20,), ends=(30,))}
    rewrite(shop.context, "one", lambda _: {"swept": later})
    sweep(shop.job)
    told = load_pipeline(spec_path(shop.context, "one")).swept
    assert {topic: swept.marks for topic, swept in told.items()} == {A: (20,), B: (5,), C: (5,)}
    assert ("one", A) not in shop.asked


def test_a_table_that_a_run_has_finished_everywhere_is_not_busy(shop: Shop) -> None:
    for sink, tables in {"one": "abc", "two": "a"}.items():
        count(shop.registry, shop.job.name, sink, swept={f"public.{name}": 0 for name in tables})
    source, sinks = shop.registry.source("shop"), shop.registry.sinks("shop")
    assert topics_left(shop.job.run, source.tables, sinks) == {B, C}
    with pytest.raises(UsageError) as busy:
        shop.begin([A, B])
    assert busy.value.code == "RESNAPSHOT_TABLE_BUSY"
    assert f"at {B} already" in busy.value.message
    shop.begin([A], mark=20)
    assert reread(shop.registry, "shop")[A] == ([20], [25])
