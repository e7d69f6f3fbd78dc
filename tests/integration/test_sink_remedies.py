"""What is told about a sink is carried out as it is printed, from the state that prints it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from deltalake import DeltaTable

from headrace.config.pipeline import SchemaPolicy
from headrace.control import lag, sink
from headrace.control.opened import open_sink
from headrace.control.registry import Registry, SinkEntry
from headrace.control.verdicts import State
from headrace.model.claim import Claim
from headrace.model.schema import TableId
from tests.support.entries import lose_registry
from tests.support.gate import gate
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.remedy import carry_out, refused
from tests.support.stack import RunningStack
from tests.support.waiting import until
from tests.support.wire import wire

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("honest"),
]

NAME = "told"
TABLES = ("goods", "names")


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE goods (id int PRIMARY KEY, v text)",
        "CREATE TABLE names (id int NOT NULL, v text)",
        "CREATE UNIQUE INDEX one ON names (id)",
        "ALTER TABLE names REPLICA IDENTITY USING INDEX one",
        *(f"INSERT INTO {table} SELECT i, 'v' || i FROM generate_series(1, 30) i" for table in TABLES),
        keys={TableId("public", "names"): ("id",)},
        policies={"cache": SchemaPolicy.EVOLVE},
    ) as made:
        made.settle()
        yield made


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    for table in TABLES:
        wanted = {str(key): value for key, value in mirror.database.run(f"SELECT id, v FROM {table}")}
        for name, rows in mirror.stored(table).items():
            assert {key: row["v"] for key, row in rows.items()} == wanted, (name, table)


def said(mirror: Mirror, name: str) -> lag.SinkLag:
    return next(found for found in lag.measure(mirror.context).sinks if found.sink == name)


def words(mirror: Mirror, name: str) -> set[tuple[State, str]]:
    return {(one.state, one.remedy) for one in lag.measure(mirror.context).tables if one.sink == name}


@pytest.mark.parametrize("short", KINDS)
def test_the_remedy_of_a_sink_whose_targets_another_took_over(mirror: Mirror, short: str) -> None:
    assert_equal(mirror)
    name = f"{NAME}{short}"
    schemas = [mirror.schema(table) for table in TABLES]
    with closing(open_sink(Registry(mirror.context.registry).sink(name))) as store:
        store.claim(schemas, Claim.new("theirs", "elsewhere", engine=True), store.claims(schemas))
    mirror.database.run(
        f"UPDATE goods SET v = 'taken {short}' WHERE id = 1", "DELETE FROM names WHERE id = 1"
    )
    until(lambda: "--take-over" in said(mirror, name).remedy)
    assert said(mirror, name).state is State.FAILED
    mirror.database.run(f"INSERT INTO names VALUES (1, 'again {short}')")
    carry_out(said(mirror, name).remedy, mirror.stack.home.root, mirror.database.run)
    # What the other has left may stand before ours; only a recovery's rows are above it.
    again = f"headrace recover {NAME}"
    until(lambda: words(mirror, name) == {(State.RESYNC_REQUIRED, again)}, why=lambda: words(mirror, name))
    carry_out(again, mirror.stack.home.root, mirror.database.run)
    assert_equal(mirror)
    until(lambda: words(mirror, name) == {(State.STREAMING, "")}, why=lambda: words(mirror, name))


def test_one_table_that_another_installation_has_taken_keeps_no_other_waiting(mirror: Mirror) -> None:
    assert_equal(mirror)
    names, taken = [f"{NAME}{short}" for short in KINDS], [mirror.schema("names")]
    for name in names:
        with closing(open_sink(Registry(mirror.context.registry).sink(name))) as store:
            store.claim(taken, Claim.new("theirs", "elsewhere", engine=True), store.claims(taken))
    mirror.database.run("UPDATE names SET v = 'waits' WHERE id = 2")

    def told() -> dict[tuple[str, str], tuple[State, str]]:
        seen = lag.measure(mirror.context).tables
        return {(one.sink, one.table): (one.state, one.remedy.rpartition(": ")[2]) for one in seen}

    wanted = {
        **{(name, "public.goods"): (State.STREAMING, "") for name in names},
        **{
            (name, "public.names"): (State.FAILED, f"headrace sink resume {name} --take-over")
            for name in names
        },
    }
    until(lambda: told() == wanted, why=told)
    mirror.database.run("UPDATE goods SET v = 'goes on' WHERE id = 2")
    until(lambda: all(rows["2"]["v"] == "goes on" for rows in mirror.stored("goods").values()))
    assert all(rows["2"]["v"] != "waits" for rows in mirror.stored("names").values())
    for name in names:
        carry_out(told()[name, "public.names"][1], mirror.stack.home.root, mirror.database.run)
    carry_out(f"headrace recover {NAME}", mirror.stack.home.root, mirror.database.run)
    assert_equal(mirror)


def test_the_remedy_of_a_search_whose_credentials_are_others(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both that are told: a key takes the place of a password, and a password that of a key."""
    assert_equal(mirror)
    name, home = f"{NAME}gated", mirror.stack.home.root
    with gate(mirror.stack.endpoints.elasticsearch_url) as before:
        before.admit_user("first", "one")
        settings = {"url": before.url, "prefix": "gated-", "username": "first", "password": "one"}
        sink.add(mirror.context, name, "elasticsearch", settings=settings, source=NAME)
        try:
            assert_equal(mirror)
            before.admit_key("c2Vjb25k")
            mirror.database.run("UPDATE goods SET v = 'under a key' WHERE id = 2")
            until(lambda: "sink rotate" in said(mirror, name).remedy)
            by_key, or_, by_password = said(mirror, name).remedy.partition("; or ")
            assert or_
            monkeypatch.setenv("VARIABLE", "c2Vjb25k")
            carry_out(by_key, home, mirror.database.run)
            assert_equal(mirror)
            assert {"api_key"} == Registry(mirror.context.registry).sink(name).settings.keys() & {
                "api_key",
                "username",
                "password",
            }

            before.admit_user("third", "three")
            mirror.database.run("UPDATE goods SET v = 'under a password' WHERE id = 2")
            until(lambda: "sink rotate" in said(mirror, name).remedy)
            assert said(mirror, name).remedy == f"{by_key}; or {by_password}"
            monkeypatch.setenv("VARIABLE", "three")
            # The name of the user only the operator knows.
            carry_out(by_password.replace("username=…", "username=third"), home, mirror.database.run)
            assert_equal(mirror)
            kept = {path.name for path in mirror.context.sink_secrets.glob(f"{name}.*")}
            assert kept == {f"{name}.password"}
        finally:
            sink.remove(mirror.context, name, purge=True)


def tombstones_are_damaged(lake: Path) -> None:
    (lake / "_headrace" / "public" / "goods.tombstones").write_bytes(b"no database" * 100)


def rule_is_added(lake: Path) -> None:
    DeltaTable(str(lake / "public" / "goods")).alter.add_constraint({"cheap": "id > -1"})


@pytest.mark.parametrize("breaks", [tombstones_are_damaged, rule_is_added])
def test_the_remedy_of_a_table_of_the_lake_that_cannot_be_written(
    mirror: Mirror, breaks: Callable[[Path], None]
) -> None:
    mirror.database.run("DELETE FROM goods WHERE id = 30")
    assert_equal(mirror)
    mirror.database.run("INSERT INTO goods VALUES (30, 'back')")
    assert_equal(mirror)
    breaks(Path(Registry(mirror.context.registry).sink(f"{NAME}lake").settings["path"]))
    mirror.database.run(
        "UPDATE goods SET v = 'after' WHERE id = 4", "DELETE FROM goods WHERE id = 5 OR id = 30"
    )
    until(lambda: "headrace resnapshot" in said(mirror, f"{NAME}lake").remedy)
    mirror.database.run("INSERT INTO goods VALUES (5, 'came back')")
    carry_out(said(mirror, f"{NAME}lake").remedy, mirror.stack.home.root, mirror.database.run)
    assert_equal(mirror)
    mirror.database.run("DELETE FROM goods WHERE id = 5", "INSERT INTO goods VALUES (30, 'back again')")
    assert_equal(mirror)


def test_the_remedy_of_a_registry_that_was_lost(mirror: Mirror) -> None:
    assert_equal(mirror)
    registry = Registry(mirror.context.registry)
    half, settings = f"{NAME}half", {"url": mirror.stack.endpoints.redis_url, "key_prefix": "1"}
    sink.add(
        mirror.context, half, "redis", settings=settings, source=NAME, tables=[TableId("public", "goods")]
    )
    mirror.settle()
    before = {entry.name: _as_told(entry) for entry in registry.sinks(NAME)}
    epochs = {table.topic: table.epoch for table in registry.source(NAME).tables}
    keys = {table.topic: table.schema.key for table in registry.source(NAME).tables}
    lose_registry(mirror.context.registry)
    mirror.database.run(
        "DELETE FROM goods WHERE id = 20", "UPDATE names SET v = 'of a second life' WHERE id = 20"
    )

    report = lag.measure(mirror.context)
    assert not report.in_sync
    (remedy,) = {found.remedy for found in report.sinks}
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HEADRACE_HOME": str(mirror.stack.home.root),
    }
    done = subprocess.run(remedy, shell=True, env=environment, capture_output=True, text=True, check=False)  # noqa: S602 - as a person pastes it
    assert done.returncode == 0, f"{remedy}\n{done.stdout}\n{done.stderr}"

    found = Registry(mirror.context.registry)
    assert {entry.name: _as_told(entry) for entry in found.sinks(NAME)} == before
    assert {table.topic: table.schema.key for table in found.source(NAME).tables} == keys
    assert all(table.epoch > epochs[table.topic] for table in found.source(NAME).tables)
    sink.remove(mirror.context, half, purge=True)
    assert_equal(mirror)


def _as_told(entry: SinkEntry) -> tuple[object, ...]:
    return entry.kind, entry.settings, entry.tables, entry.on_schema_change


def test_a_sink_whose_store_is_gone_is_removed_as_the_refusal_tells(mirror: Mirror) -> None:
    at = mirror.stack.endpoints.redis_url
    place, name = urlsplit(at), "toldgone"
    with wire(str(place.hostname), int(place.port or 0)) as way:
        settings = {"url": at.replace(f":{place.port}", f":{way.port}"), "key_prefix": "gone:"}
        sink.add(mirror.context, name, "redis", settings=settings, source=mirror.name)
    home = mirror.stack.home.root
    error = refused(home, "sink", "remove", name, "--purge")
    assert error["code"] == "REDIS_UNREACHABLE"
    carry_out(error["hint"], home, mirror.database.run)
    assert name not in [entry.name for entry in Registry(mirror.context.registry).sinks()]
