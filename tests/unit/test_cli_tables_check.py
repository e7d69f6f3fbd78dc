"""``source tables add``: what it is refused for, told by ``--dry-run`` as well, and what it leaves out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli import home as cli_home
from headrace.control import fitness, tables, tables_check
from headrace.control.connect import ConnectorState
from headrace.control.kafka import Topic
from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.model.claim import Claim
from headrace.model.errors import StackError
from headrace.model.finding import Finding
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks import registry as kinds
from sinks.memory import MemorySink
from tests.support.cold_home import TABLES, add, cold_home, told
from tests.support.obeying import Servers

LATER = TableSchema(TableId("public", "later"), (Column("id", LogicalType.INT32),), ("id",))
WORDS = ("source", "tables", "add", "shop", "public.later", "--dry-run")


class _Asked(Servers):
    """Servers that are asked, and told nothing."""

    found: tuple[Finding, ...] = ()
    used: bool = False

    def settled(self, name: str) -> ConnectorState:
        return self.state(name)

    def preflight(self, *_: object, **__: object) -> list[Finding]:
        return [*self.found, Finding.error("SOURCE_SLOTS", "is there already")]

    def check_anew(self, _: object) -> list[Finding]:
        return []

    def catalogue(self, tables: Any = (), *_: object) -> list[TableSchema]:
        return [replace(LATER, table=table) for table in tables]

    def ends(self, *asked: Any, **_: object) -> dict[tuple[str, int], tuple[int, int]]:
        return {(topic, 0): (0, 1) for topic in asked[0]} if self.used else {}

    def create(self, what: Any, config: dict[str, str] | None = None, *, only_ask: bool = False) -> None:
        assert only_ask, "something was made"
        assert all(isinstance(topic, Topic) for topic in what)


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Asked:
    """Return the servers of an installation with a source that streams, and two sinks of it."""
    root = cold_home(tmp_path / "home")
    add(root, "shop", "postgresql://me@db.example:5432/shop")
    add(root, "depot", "postgresql://me@db.example:5432/depot")
    with Registry(root / "registry.db").begin() as session:
        for name, tables in {"memory": TABLES, "few": TABLES[:1]}.items():
            held = {f"shop.{schema.table}": {"store": f"{name} {schema.table}"} for schema in tables}
            session.add(
                SinkEntry(
                    name=name, kind="memory", source="shop", settings={"store": f"{tmp_path} {name}"},
                    tables=held, incomplete={}, incomplete_ms={}, on_schema_change="lenient", created_ms=1,
                )
            )  # fmt: skip
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    servers = _Asked()
    servers.connectors["headrace_shop"] = {}
    monkeypatch.setattr(fitness, "Connect", lambda _: servers)
    monkeypatch.setattr(tables_check, "Kafka", lambda _: servers)
    monkeypatch.setattr(tables_check, "source_of", lambda *_: servers)
    return servers


def refused(*words: str) -> list[str]:
    said = json.loads(told(*words, "--json", code=1).stdout)
    assert said["fit"] is False
    return [one["code"] for one in said["findings"] if one["severity"] == "error"]


def test_what_would_be_captured_is_said_and_nothing_is_made(servers: _Asked) -> None:
    servers.found = (Finding.warning("SOURCE_TABLE_REREAD", "It cannot be read anew."),)
    said = json.loads(told(*WORDS, "--json").stdout)
    assert [one["code"] for one in said.pop("findings")] == ["SOURCE_TABLE_REREAD"]
    assert said == {
        "source": "shop", "dry_run": True, "fit": True, "topics": ["shop.public.later"], "sinks": ["memory"],
        "left_out": {},
    }  # fmt: skip
    text = told(*WORDS, "--sink", "few").stdout
    assert "Would capture shop.public.later into few." in text
    assert "SOURCE_TABLE_REREAD" in text


def test_every_reason_of_a_refusal_is_said(
    servers: _Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.found = (Finding.error("SOURCE_NO_PRIMARY_KEY", "It has no key.", table=LATER.table),)
    assert refused(*WORDS) == ["SOURCE_NO_PRIMARY_KEY"]
    assert refused(*WORDS, "public.goods") == ["TABLE_CAPTURED", "SOURCE_NO_PRIMARY_KEY"]
    assert refused(*WORDS, "--key", "public.other=id") == ["SOURCE_KEY_UNMEANT", "SOURCE_NO_PRIMARY_KEY"]
    servers.found, servers.used = (), True
    assert refused(*WORDS) == ["SOURCE_TOPICS_EXIST"]
    servers.used = False
    store = kinds.build("memory", "memory", {"store": f"{tmp_path} memory"})
    assert not store.claim([LATER], Claim("h", "theirs", "/their/home", True, 1), {})
    assert refused(*WORDS) == ["SINK_TARGET_TAKEN"]
    store.close()
    servers.connectors.clear()
    assert refused(*WORDS, "--sink", "few") == ["SOURCE_NOT_STREAMING"]
    home = Path(cli_home.home_of(None).root)
    with Registry(home / "registry.db").begin() as session:
        session.get_one(SourceEntry, "shop").gap = "the slot is gone"
    assert refused(*WORDS, "--sink", "few") == ["SOURCE_GAP"]


def test_a_name_that_there_is_not_is_refused_as_by_the_command(servers: _Asked) -> None:
    for words, code in {
        ("source", "tables", "add", "shoop", "t"): "SOURCE_UNKNOWN",
        (*WORDS, "--sink", "none"): "SINK_UNKNOWN",
        ("source", "tables", "add", "depot", "t", "--sink", "few"): "SINK_OF_OTHER_SOURCE",
    }.items():
        error = json.loads(told(*words, "--dry-run", "--json", code=2).stderr)["error"]
        assert error["code"] == code


def test_what_cannot_be_asked_is_said_beside_what_was_found(
    servers: _Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_: str) -> Any:
        raise StackError("Kafka does not answer.", code="KAFKA_UNREACHABLE")

    monkeypatch.setattr(tables_check, "Kafka", silent)
    servers.found = (Finding.warning("SOURCE_TABLE_REREAD", "It cannot be read anew."),)
    said = json.loads(told(*WORDS, "--json", code=1).stdout)
    assert [one["code"] for one in said["findings"]] == ["SOURCE_TABLE_REREAD", "KAFKA_UNREACHABLE"]


REFUSES = "Something else has the name of its target."
BOTH = (*WORDS[:-1], "public.more")
LEAVING_OUT = "headrace source tables add shop public.later public.more --skip-unfit"


@pytest.fixture
def picky(servers: _Asked, monkeypatch: pytest.MonkeyPatch) -> _Asked:
    """Have the stores refuse one of two tables for itself."""

    def check(_: MemorySink, schemas: Sequence[TableSchema] = ()) -> list[Finding]:
        unfit = [schema.table for schema in schemas if schema.table == LATER.table]
        return [Finding.error("ES_NAME_TAKEN", REFUSES, "Rename it.", table) for table in unfit]

    monkeypatch.setattr(MemorySink, "check", check)
    return servers


def test_a_table_that_a_store_refuses_is_told_and_would_be_left_out(picky: _Asked) -> None:
    said = json.loads(told(*BOTH, "--dry-run", "--json", code=1).stdout)
    (found,) = said["findings"]
    assert (found["table"], found["message"]) == ("public.later", f"memory: {REFUSES}")
    assert found["hint"] == f"Rename it.\nOr leave public.later out: {LEAVING_OUT}"
    said = json.loads(told(*BOTH, "--dry-run", "--skip-unfit", "--json").stdout)
    assert (said["fit"], said["topics"]) == (True, ["shop.public.more"])
    assert said["left_out"] == {"public.later": f"memory: {REFUSES} Rename it."}
    assert [(one["severity"], one["table"]) for one in said["findings"]] == [("warning", "public.later")]
    assert refused(*WORDS, "--skip-unfit") == ["ES_NAME_TAKEN"], "nothing would be left"
    assert refused(*BOTH, "public.goods", "--dry-run", "--skip-unfit") == ["TABLE_CAPTURED"]


def test_a_table_that_the_database_refuses_would_be_left_out_as_well(servers: _Asked) -> None:
    servers.found = (Finding.error("SOURCE_NO_PRIMARY_KEY", "It has no key.", table=LATER.table),)
    said = json.loads(told(*BOTH, "--dry-run", "--skip-unfit", "--json").stdout)
    assert (said["topics"], said["left_out"]) == (["shop.public.more"], {"public.later": "It has no key."})


class _Taking(_Asked):
    """Servers that are told what to capture, and have it."""

    def create(self, what: Any, config: dict[str, str] | None = None, *, only_ask: bool = False) -> None:
        Servers.create(self, what, config, only_ask=only_ask)

    def publish(self, _: object) -> None:
        """Publish nothing."""


def test_tables_are_taken_in_without_the_one_that_a_store_refuses(
    picky: _Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command once more, as after a kill, goes on with what it has begun."""
    taking = _Taking(connectors=picky.connectors)
    monkeypatch.setattr(tables, "Kafka", lambda _: taking)
    monkeypatch.setattr(tables, "source_of", lambda *_: taking)
    monkeypatch.setattr(tables, "tell_connector", lambda *_, **__: None)
    monkeypatch.setattr(tables, "_hand_over", lambda *_: None)
    monkeypatch.setattr(tables, "start", lambda *_, **__: SimpleNamespace(id="3f2a"))
    registry = Registry(Path(cli_home.home_of(None).root) / "registry.db")
    error = json.loads(told(*BOTH, "--json", code=1).stderr)["error"]
    assert (error["code"], error["hint"].splitlines()[-1]) == (
        "ES_NAME_TAKEN", f"Or leave public.later out: {LEAVING_OUT}"
    )  # fmt: skip
    assert len(registry.source("shop").tables) == len(TABLES)
    assert taking.topics == set()
    for _ in range(2):
        said = json.loads(told(*BOTH, "--skip-unfit", "--no-wait", "--json").stdout)
        assert (said["tables"], said["left_out"].keys()) == (["public.more"], {"public.later"})
        assert [one["code"] for one in said["findings"]] == ["ES_NAME_TAKEN"]
        captured = {str(table.schema.table) for table in registry.source("shop").tables}
        assert captured == {*(str(table.table) for table in TABLES), "public.more"}
        held = {one.name: one.tables.keys() for one in registry.sinks("shop")}
        assert "shop.public.more" in held["memory"]
        assert held["few"] == {"shop.public.goods"}
    text = told(*BOTH, "--skip-unfit", "--no-wait").stdout
    assert f"public.later is left out: memory: {REFUSES}" in text
    assert "public.more: captured; headrace resnapshot wait 3f2a" in text
