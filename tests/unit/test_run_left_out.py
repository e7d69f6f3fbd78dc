"""Runs that nobody has asked for leave out, by name, tables that cannot be read anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from connectors.base import Source
from headrace.control import first_load
from headrace.control.context import Context
from headrace.control.registry import Registry, SinkEntry
from headrace.control.runs import asking, left_out, sweeping
from headrace.control.runs import start as runs
from headrace.control.runs.final import FINAL
from headrace.control.runs.job import Job
from headrace.control.runs.left_out import TablesUnread, Why, leave_out, raise_left_out, tell
from headrace.control.runs.repository import all_of, change, insert, run_of, topics_of
from headrace.control.runs.settling import shadow_of
from headrace.control.runs.sweeping import sweep
from headrace.control.verdicts import RESTARTED, State, Verdict, record, standing
from headrace.model.errors import SourceError
from headrace.model.finding import Finding
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks import registry as kinds
from sinks.base import Sink
from sinks.shadow import SHADOW
from tests.support.entries import source_entry
from tests.unit.test_run_sweeping import A, B, C, Shop, swept_here

GOOD, LIST, ODD = TableId("public", "good"), TableId("public", "list"), TableId("public", "odd.name")
ALL = ["shop.public.good", "shop.public.list", "shop.public.odd.name"]
LEFT = Verdict(State.DEGRADED, "rows may be left", "headrace resnapshot shop")


class Home:
    """An installation of one source; its tables are the only thing that is known of the database."""

    def __init__(self, folder: Path) -> None:
        self.registry = Registry(folder / "registry.db")
        self.context = cast("Context", type("Folders", (), {"registry": folder / "registry.db"}))
        keys = [Column("id", LogicalType.INT32), Column("id", LogicalType.INT32, dimensions=1)]
        schemas = [
            TableSchema(table, (column,), ("id",))
            for table, column in ((GOOD, keys[0]), (LIST, keys[1]), (ODD, keys[0]))
        ]
        with self.registry.begin() as session:
            session.add(source_entry("shop", schemas, loaded_ms=2))
        record(self.registry, self.registry.source("shop"), ALL, RESTARTED, LEFT)
        self.handed_over: list[str] = []

    def said(self, topic: str) -> tuple[str, str]:
        (found,) = (found for found in standing(self.registry, "shop") if found.topic == topic)
        return found.reason, found.remedy


class Estimates:
    """A database without statistics."""

    def estimate_rows(self, tables: Sequence[TableId]) -> dict[TableId, int]:
        return dict.fromkeys(tables, 0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path)
    monkeypatch.setattr(runs, "refuse_not_streaming", lambda *_, **__: None)
    monkeypatch.setattr(runs, "source_of", lambda *_: Estimates())
    monkeypatch.setattr(runs, "hand_over", lambda _, run: made.handed_over.append(run.id))
    return made


def start(home: Home, *tables: TableId, **options: Any) -> Any:
    run = runs.start(home.context, "shop", tables=tables, **options)
    return run_of(home.registry, run.id)


def test_a_dry_run_of_tables_that_are_named_fails_as_the_run_would(home: Home) -> None:
    with pytest.raises(SourceError) as caught:
        runs.plan(home.context, "shop", tables=[GOOD, LIST])
    assert (caught.value.code, caught.value.hint) == ("RESNAPSHOT_UNREADABLE", "headrace recover shop")
    assert "public.list: its key holds an array" in caught.value.message
    assert "good" not in caught.value.message


def test_a_run_that_nobody_asked_for_leaves_out_what_cannot_be_read(home: Home) -> None:
    run = start(home, GOOD, LIST, ODD, spare=True)
    assert topics_of(run) == {ALL[0]}
    assert run.plan["left_out"].keys() == {"public.list", "public.odd.name"}
    assert home.handed_over == [run.id]
    assert home.said(ALL[0]) == (LEFT.reason, LEFT.remedy)
    assert home.said(ALL[1]) == (
        "rows may be left; it was not read anew: its key holds an array", "headrace recover shop"
    )  # fmt: skip
    start(home, LIST, spare=True)
    assert home.said(ALL[1])[0].count("it was not read anew") == 1
    with pytest.raises(SourceError) as told:
        raise_left_out(home.registry.source("shop"), run)
    assert (told.value.code, told.value.hint) == ("RESNAPSHOT_UNREADABLE", "headrace recover shop")


def test_a_run_of_nothing_that_can_be_read_is_over_at_once(home: Home) -> None:
    run = start(home, LIST, ODD, spare=True)
    assert (run.phase, topics_of(run), home.handed_over) == ("completed", set(), [])
    assert run.plan["left_out"].keys() == {"public.list", "public.odd.name"}


def test_tables_that_a_person_names_stay_in_the_run(home: Home) -> None:
    assert topics_of(start(home, GOOD, LIST)) == {ALL[0], ALL[1]}
    assert topics_of(start(home, queue=True)) == {ALL[0]}
    assert home.said(ALL[2])[1] == "headrace recover shop"


def test_what_mends_a_table_comes_before_what_reads_it(home: Home) -> None:
    grant = Why("Not every row of it is seen.", "GRANT SELECT ON t TO r;", alone=False)
    entry = home.registry.source("shop")
    with home.registry.begin() as session:
        tell(session, entry, {ALL[0]: grant})
    assert home.said(ALL[0])[1] == "GRANT SELECT ON t TO r; -- then: headrace resnapshot shop"


def test_a_first_load_that_began_again_reads_what_it_can(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_load, "there", lambda *_: True)
    with home.registry.begin() as session:
        fields: dict[str, Any] = {"tables": {}, "settings": {}, "incomplete": {}, "incomplete_ms": {}}
        session.add(SinkEntry(name="one", kind="memory", source="shop", created_ms=1, **fields))
    for _ in range(2):
        first_load.begin_runs(home.context, home.registry, cast("Any", None), "shop")
    (run,) = all_of(home.registry, "shop")
    assert topics_of(run) == {ALL[0]}


class Unfit:
    """A database that says of some tables what is wrong with them."""

    def __init__(self, **found: Finding) -> None:
        self._found = {TableId("public", name): finding for name, finding in found.items()}

    def unfit_now(self, tables: Sequence[TableSchema]) -> dict[TableId, Finding]:
        return {schema.table: self._found[schema.table] for schema in tables if schema.table in self._found}


def failed(shop: Shop, source: Unfit, *names: str) -> bool:
    return leave_out(shop.job, cast("Source", source), {TableId("public", name): None for name in names})


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    change(made.registry, made.job.name, {"again": {B: [[1]]}, "shadows": {"one": [A, B]}})
    return made


def test_a_table_that_cannot_be_read_leaves_the_run_to_the_others(shop: Shop) -> None:
    gone = Finding.error("SOURCE_TABLE_MISSING", "There is no table public.b.", "tables remove SOURCE b")
    assert failed(shop, Unfit(b=gone), "b")
    plan = shop.job.run.plan
    assert (plan["topics"], plan["again"], plan["shadows"]) == ([A, C], {}, {"one": [A]})
    assert plan["left_out"] == {"public.b": "There is no table public.b. tables remove shop b"}
    right = Finding.error("SOURCE_SELECT_RIGHT", "It may not be read.", "GRANT SELECT;")
    assert failed(shop, Unfit(c=right), "c")
    assert shop.job.run.plan["left_out"]["public.c"] == (
        "It may not be read. GRANT SELECT; -- then: headrace resnapshot shop public.c"
    )
    assert not failed(shop, Unfit(a=gone), "a"), "the last one"
    assert not failed(shop, Unfit())
    assert topics_of(shop.job.run) == {A}


def test_what_only_a_recovery_reads_is_left_to_it_alone(shop: Shop) -> None:
    moved = Finding.error("RESNAPSHOT_UNREADABLE", "It cannot be read anew.", "headrace recover SOURCE")
    assert failed(shop, Unfit(b=moved), "b")
    assert shop.job.run.plan["left_out"] == {"public.b": "It cannot be read anew. headrace recover shop"}


def test_what_nothing_explains_is_read_once_more_before_it_is_left_out(shop: Shop) -> None:
    assert failed(shop, Unfit(), "b")
    assert (topics_of(shop.job.run), shop.job.run.plan["failed"]) == ({A, B, C}, [B])
    assert failed(shop, Unfit(), "b")
    assert topics_of(shop.job.run) == {A, C}
    assert shop.job.run.plan["left_out"] == {
        "public.b": "public.b was not read whole. headrace resnapshot shop public.b"
    }


REKEYED = Finding.error("SOURCE_KEY_CHANGED", "The key of public.b is (code) now and was (id).")
ANOTHER_KEY = (
    "headrace source tables remove shop public.b --purge && headrace source tables add shop public.b"
)


class Database(Unfit, Estimates):
    """The same, without statistics."""


def reading(shop: Shop, monkeypatch: pytest.MonkeyPatch, *, whole: bool) -> Job:
    """Return a run of two tables that nothing keeps from asking for them."""
    for wait in ("_until_loaded", "_until_quiet", "until_confirmed"):
        monkeypatch.setattr(asking, wait, lambda *_: None)
    plan: dict[str, Any] = {"whole": whole, "left_out": {}, "estimate": 0}
    run = insert(shop.registry, "shop", [A, B], ["one", "two"], queue=True, why="", **plan)
    return Job(shop.context, run.id, shop.registry, shop.job.kafka)


def ask(job: Job) -> None:
    asking.ask(job, cast("Source", Database(b=REKEYED)), cast("Any", None))


@pytest.mark.parametrize("whole", [False, True], ids=["named", "whole"])
def test_a_table_of_another_key_is_refused_before_it_is_read_or_left_out(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Its rows would be set aside, and those of before be taken for gone."""
    job = reading(shop, monkeypatch, whole=whole)

    def stops(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(asking, "_prepare", stops)
    with pytest.raises(InterruptedError if whole else TablesUnread) as refused:
        ask(job)
    if isinstance(refused.value, TablesUnread):
        assert refused.value.code == REKEYED.code
        assert refused.value.hint == f"{ANOTHER_KEY} -- then: headrace resnapshot resume {job.name}"
        assert refused.value.code in FINAL, "it would be tried again for ever"
        assert topics_of(job.run) == {A, B}
    else:
        assert topics_of(job.run) == {A}
        assert job.run.plan["left_out"] == {"public.b": f"{REKEYED.message} {ANOTHER_KEY}"}


class Killed(BaseException):
    """What nobody catches."""


def killed(*_: object) -> None:
    raise Killed


def test_a_table_is_not_left_out_before_that_is_said_of_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever works on the run after a process that was killed knows only what the plan says."""
    gone = Finding.error("SOURCE_TABLE_MISSING", "There is no table public.b.", "tables remove SOURCE b")
    with monkeypatch.context() as once:
        once.setattr(left_out, "tell", killed)
        with pytest.raises(Killed):
            failed(shop, Unfit(b=gone), "b")
    assert B in topics_of(shop.job.run)
    assert failed(shop, Unfit(b=gone), "b")
    (found,) = (found for found in standing(shop.registry, "shop") if found.topic == B)
    assert found.reason.endswith("it was not read anew: There is no table public.b.")
    assert found.remedy == "tables remove shop b"

    job = reading(shop, monkeypatch, whole=True)
    monkeypatch.setattr(asking, "tell", killed)
    with pytest.raises(Killed):
        ask(job)
    assert B in topics_of(job.run)


def test_a_run_does_not_begin_before_what_it_leaves_out_is_said(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as once:
        once.setattr(runs, "tell", killed)
        with pytest.raises(Killed):
            start(home, GOOD, LIST, spare=True)
    assert all_of(home.registry, "shop") == []


def test_a_table_that_is_dropped_while_its_shadows_are_filled_leaves_nothing_of_them(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept_here(shop, monkeypatch)
    gone = Finding.error("SOURCE_TABLE_MISSING", "There is no table public.a.", "tables remove SOURCE a")
    change(shop.registry, shop.job.name, {"shadows": {"one": [A], "two": [A]}})

    def meanwhile() -> None:
        for sink in ("one", "two"):
            shop.settle(sink, B, C)

    shop.time.meanwhile = meanwhile
    a, filled = shop.registry.source("shop").tables[0], set[str]()

    def hidden(job: Job) -> None:
        if A in topics_of(job.run):
            filled.update(sink for sink in ("one", "two") if shadow_of_a(sink).exists(a.schema))
            why = Why("There is no table public.a.", "", alone=True)
            raise TablesUnread(
                "It is gone.", code="SOURCE_TABLE_MISSING", hint="", tables={TableId("public", "a"): why}
            )

    def shadow_of_a(sink: str) -> Sink:
        return kinds.build("memory", sink, {SHADOW: shadow_of(shop.job.run, a)})

    monkeypatch.setattr(sweeping, "refuse_hidden", hidden)
    monkeypatch.setattr(sweeping, "source_of", lambda *_: Unfit(a=gone))
    sweep(shop.job)
    assert filled == {"one", "two"}
    assert shop.swept == {"one": ["public.b", "public.c"], "two": ["public.b", "public.c"]}
    assert sorted(path.name for path in shop.context.pipelines.iterdir()) == ["one.json", "two.json"]
    assert not any(shadow_of_a(sink).exists(a.schema) for sink in ("one", "two"))


def test_a_run_asks_nothing_about_a_table_that_it_has_left_out(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sink would have lost many rows of it; then it was dropped."""
    swept_here(shop, monkeypatch)
    change(shop.registry, shop.job.name, {"shadows": {}})
    shop.settle("one", A, B, C)
    shop.settle("two")
    shop.many = {("one", A)}

    def meanwhile() -> None:
        gone = Finding.error("SOURCE_TABLE_MISSING", "There is no table public.a.")
        failed(shop, Unfit(a=gone), "a")
        shop.settle("two", B, C)

    shop.time.meanwhile = meanwhile
    sweep(shop.job)
    assert shop.swept == {"one": ["public.b", "public.c"], "two": ["public.b", "public.c"]}
