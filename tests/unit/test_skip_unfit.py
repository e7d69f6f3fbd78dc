"""``--skip-unfit``: tables that a store refuses for themselves are left out by name. The lake is real."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.cli import home as cli_home
from headrace.cli.context import open_context
from headrace.config.pipeline import SchemaPolicy, load_pipeline
from headrace.control import lag, sink, sink_tables, take_out
from headrace.control.adding import note
from headrace.control.context import Context
from headrace.control.registry import Adding, Registry, SinkEntry, SourceEntry, SourceTableEntry
from headrace.control.remedies import another_key
from headrace.control.tables_check import mirrors_of
from headrace.control.undone import begun_sinks
from headrace.model.errors import HeadraceError
from headrace.model.finding import Finding
from headrace.model.schema import TableId
from sinks.delta.config import ASIDE, data_path
from tests.support.cold_home import TABLES, add, cold_home, told
from tests.support.killed import Dropping, Killed, killing
from tests.support.obeying import URL, Servers, obeying
from tests.support.observed import SINK, SOURCE

GOODS, ORDERS, PEOPLE = (table.table for table in TABLES)
FIT = {"shop.public.goods", "shop.public.people"}
UNFIT = "shop.public.orders"


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    yield from obeying(monkeypatch)


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: Servers) -> Context:
    """Return an installation with a source of three tables, and observe it without its servers."""
    root = cold_home(tmp_path / "home")
    add(root, "shop", "postgresql://me@db.example:5432/shop")
    with Registry(root / "registry.db").begin() as session:
        session.get_one(SourceEntry, "shop").settings = SOURCE.entry.settings
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    found = open_context(root)

    def seen(*_: object) -> Any:
        registry = Registry(found.registry)
        return [replace(SOURCE, entry=registry.source("shop"))], [
            replace(SINK, entry=entry) for entry in registry.sinks()
        ]

    monkeypatch.setattr(lag, "observe", seen)
    monkeypatch.setattr(lag, "Kafka", lambda _: servers)
    return found


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return a lake in which somebody else has a table where one of ours would be."""
    taken(tmp_path / "a lake", ORDERS)
    return tmp_path / "a lake"


def taken(lake: Path, *tables: TableId) -> None:
    for table in tables:
        path = data_path(lake, table)
        path.mkdir(parents=True)
        write_deltalake(path, pa.table({"theirs": [1]}), name="theirs")


def words(lake: Path, room: str = "add") -> tuple[str, ...]:
    wait = ("--no-wait",) if room == "add" else ()
    return ("sink", room, "lake", "--kind", "delta", "--path", str(lake), *wait, "--json")


def there(lake: Path) -> set[str]:
    return {str(path.relative_to(lake)) for path in lake.rglob("*")}


def refused(*arguments: str) -> dict[str, str]:
    error: dict[str, str] = json.loads(told(*arguments, code=1).stderr)["error"]
    return error


def again(hint: str) -> list[str]:
    """Return the words of the command that a hint names last."""
    line = hint.splitlines()[-1]
    assert line.startswith("Or leave public.orders out: headrace ")
    return shlex.split(line.partition("out: headrace ")[2])


def test_a_table_that_the_lake_refuses_is_left_out_as_the_refusal_tells(context: Context, lake: Path) -> None:
    before = there(lake)
    error = refused(*words(lake))
    assert error["code"] == "DELTA_PATH_TAKEN"
    assert there(lake) == before
    said = json.loads(told(*again(error["hint"]), "--json").stdout)
    assert said["tables"].keys() == {"public.goods", "public.people"}
    (why,) = said["left_out"].items()
    assert why[0] == "public.orders"
    assert all(part in why[1] for part in ("called theirs", "Give the sink a directory of its own."))
    (found,) = (one for one in said["findings"] if "table" in one)
    assert (found["severity"], found["code"], found["table"]) == (
        "warning", "DELTA_PATH_TAKEN", "public.orders"
    )  # fmt: skip
    assert found["hint"] == "Give the sink a directory of its own."
    assert DeltaTable(data_path(lake, ORDERS)).metadata().name == "theirs"
    assert DeltaTable.is_deltatable(str(data_path(lake, GOODS)))
    spec = load_pipeline(context.pipelines / "lake.json")
    assert {table.topic for table in spec.tables} == FIT
    assert {table.table for table in lag.measure(context).tables} == {"public.goods", "public.people"}
    shown = told("sink", "show", "lake").stdout
    assert "left out public.orders: " in shown


def test_people_are_told_at_the_end_what_is_left_out(context: Context, lake: Path) -> None:
    text = told(*words(lake)[:-1], "--skip-unfit").stdout
    assert "public.orders is left out: " in text
    assert "Give the sink a directory of its own." in text
    assert text.index("is left out") < text.index("follow shop: 2 tables")


def test_a_check_says_what_would_be_left_out_and_makes_nothing(context: Context, lake: Path) -> None:
    before = there(lake)
    said = json.loads(told(*words(lake, "check"), code=1).stdout)
    assert (said["fit"], said["left_out"]) == (False, {})
    (found,) = (one for one in said["findings"] if one["severity"] == "error")
    assert again(found["hint"])[-1] == "--skip-unfit"
    said = json.loads(told(*words(lake, "check"), "--skip-unfit").stdout)
    assert said["fit"]
    assert said["left_out"].keys() == {"public.orders"}
    assert [one["code"] for one in said["findings"] if one["severity"] == "warning"] == ["DELTA_PATH_TAKEN"]
    assert there(lake) == before
    assert Registry(context.registry).sinks() == []


def test_a_store_that_refuses_every_table_refuses_the_sink(context: Context, lake: Path) -> None:
    taken(lake, GOODS, PEOPLE)
    error = refused(*words(lake), "--skip-unfit")
    assert error["code"] == "SINK_UNFIT"
    assert "--skip-unfit" not in error["hint"]
    assert Registry(context.registry).sinks() == []
    only = refused(*words(lake), "--skip-unfit", "--table", "public.orders")
    assert only["code"] == "DELTA_PATH_TAKEN"


def test_a_source_tells_what_it_leaves_out_under_the_same_names(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Finding.error("SOURCE_NO_PRIMARY_KEY", "It has no key.", "Give it one.", ORDERS)]
    monkeypatch.setattr(servers, "tables", lambda _: [GOODS, ORDERS])
    monkeypatch.setattr(servers, "preflight", lambda *_, **__: found)
    servers.may_go_on.set()
    said = json.loads(told("source", "add", "depot", URL, "--skip-unfit", "--no-wait", "--json").stdout)
    assert said["tables"].keys() == {"public.goods"}
    assert said["left_out"] == {"public.orders": "It has no key. Give it one."}
    assert [(one["severity"], one["table"]) for one in said["findings"]] == [("warning", "public.orders")]


def test_nothing_is_told_to_be_left_out_of_a_store_that_would_be_refused_all_the_same(
    context: Context, lake: Path
) -> None:
    (lake / ASIDE).mkdir()
    (lake / ASIDE / "owner").write_text("another")
    error = refused(*words(lake))
    assert error["code"] == "SINK_UNFIT"
    assert "--skip-unfit" not in error["hint"]
    assert refused(*words(lake), "--skip-unfit")["message"].startswith("The lake's directory ")


def test_a_command_that_holds_a_secret_is_not_printed() -> None:
    def command(**settings: Any) -> str:
        return sink_tables.leaving_out(
            "cache", "redis", settings, source="shop", tables=[TableId("public", "a b")], take_over=True,
            on_schema_change=SchemaPolicy.EVOLVE,
        )  # fmt: skip

    assert command(url="redis://h", password="geheim") == ""
    assert command(url="redis://me:geheim@h") == ""
    assert command(url="redis://h", password="env:P", timeout=3) == (
        "headrace sink add cache --kind redis --source shop --table 'public.a b' --set url=redis://h"
        " --set password=env:P --set timeout=3 --on-schema-change evolve --take-over --skip-unfit"
    )


def given(context: Context, lake: Path, *, skip: bool = True) -> tuple[SinkEntry, list[str]]:
    entry, found = sink.add(
        context, "lake", "delta", settings={"path": str(lake)}, source="shop", wait=False, skip_unfit=skip
    )
    return entry, [str(one.table) for one in found if one.table is not None]


def holds(context: Context, lake: Path) -> None:
    """Insist that the sink is there, whole, and without the table that is not ours."""
    (entry,) = Registry(context.registry).sinks()
    assert entry.tables.keys() == FIT
    assert entry.left_out is not None
    assert entry.left_out.keys() == {UNFIT}
    assert begun_sinks(Registry(context.registry)) == {}
    assert DeltaTable(data_path(lake, ORDERS)).metadata().name == "theirs"


@pytest.mark.parametrize("step", ["note_targets", "create", "begin", "marks_to_pass"])
def test_one_that_was_killed_before_it_registered_is_given_again(
    context: Context, lake: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sink, "ExitStack", Dropping)
        patch.setattr(sink, step, killing(getattr(sink, step)))
        with pytest.raises(Killed):
            given(context, lake)
    with pytest.raises(HeadraceError) as caught:
        given(context, lake, skip=False)
    assert caught.value.code == "SINK_EXISTS"
    assert given(context, lake)[1] == ["public.orders"]
    holds(context, lake)


@pytest.mark.parametrize("step", [Adding.REGISTERED, Adding.STARTED])
def test_one_that_was_killed_after_it_registered_is_given_again(
    context: Context, lake: Path, step: Adding, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = given(context, lake)
    swept: list[SourceTableEntry] = []
    monkeypatch.setattr(sink, "sweep_new_sink", lambda *told: swept.extend(told[3]))
    note(Registry(context.registry), first, step)
    with pytest.raises(HeadraceError) as caught:
        given(context, lake, skip=False)
    assert caught.value.code == "SINK_EXISTS"
    last, left = given(context, lake)
    assert (last.created_ms == first.created_ms) is (step is Adding.STARTED)
    assert left == ["public.orders"], "it is told by whoever ends the command"
    assert {table.topic for table in swept} == FIT, "the other one is not ours to sweep"
    holds(context, lake)


def test_a_sink_that_leaves_a_table_out_takes_in_those_that_come_later(context: Context, lake: Path) -> None:
    given(context, lake)
    registry = Registry(context.registry)
    origin = registry.source("shop")
    assert [one.name for one in mirrors_of(registry, origin, ())] == ["lake"]
    told_key = another_key(origin, registry.sinks(), GOODS)
    assert told_key.endswith("headrace source tables add shop public.goods"), "no sink has to be named"
    take_out._unregister(registry, "shop", {UNFIT}, [ORDERS], told=True)
    assert registry.sink("lake").left_out is None
    assert [one.name for one in mirrors_of(registry, registry.source("shop"), ())] == ["lake"]


def test_a_sink_of_chosen_tables_takes_in_none_that_come_later(context: Context, lake: Path) -> None:
    sink.add(
        context, "lake", "delta", settings={"path": str(lake)}, source="shop", tables=[GOODS, ORDERS],
        wait=False, skip_unfit=True,
    )  # fmt: skip
    registry = Registry(context.registry)
    assert mirrors_of(registry, registry.source("shop"), ()) == []
