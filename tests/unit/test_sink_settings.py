"""What a person writes as `--set name=value` is what the setting takes: a text of digits stays a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import home as cli_home
from headrace.control.registry import Registry, SinkEntry
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.registry import config_model, setting_of
from tests.support.cold_home import cold_home, told
from tests.support.entries import source_entry

URLS = {"redis": {"url": "redis://h"}, "elasticsearch": {"url": "http://h"}, "delta": {"path": "/x"}}


@pytest.mark.parametrize(
    ("kind", "name", "text", "value"),
    [
        ("redis", "username", "123456", "123456"),
        ("redis", "password", "123456", "123456"),
        ("redis", "password", "true", "true"),
        ("redis", "key_prefix", "7", "7"),
        ("redis", "timeout", "7.5", 7.5),
        ("elasticsearch", "prefix", "2026", "2026"),
        ("elasticsearch", "username", "null", None),
        ("elasticsearch", "refresh_interval", "-1", "-1"),
        ("elasticsearch", "shards", "3", 3),
        ("delta", "deletion_vectors", "true", True),
        ("delta", "path", "42", "42"),
        ("delta", "unheld", "null", "null"),
        ("delta", "unheld.public.t.v", "null", "null"),
    ],
)
def test_a_setting_is_read_as_what_it_takes(kind: str, name: str, text: str, value: Any) -> None:
    found = setting_of(kind, name, text)
    assert found == value
    assert type(found) is type(value)
    config_model(kind)(**{**URLS[kind], name: found})


def test_what_is_no_setting_is_left_to_the_model() -> None:
    assert setting_of("redis", "nonsense", "[1]") == [1]
    assert setting_of("redis", "nonsense", "[1") == "[1"
    assert setting_of("delta", "unheld.public.t.v", "nearest") == "nearest"


BILLS = TableSchema(
    TableId("public", "bills"),
    (
        Column("id", LogicalType.INT32),
        Column("doc", LogicalType.JSON),
        Column("docs", LogicalType.JSON, dimensions=1),
        Column("until", LogicalType.DATE),
        Column("days", LogicalType.DATE, dimensions=1),
        Column("price", LogicalType.NUMERIC, precision=38, scale=2),
        Column("exact", LogicalType.NUMERIC),
    ),
    ("id",),
)
USEFUL = {"elasticsearch": {"doc"}, "delta": {"until", "days", "price"}}


@pytest.fixture
def bills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Return the registry of a home with one table, a lake, and an Elasticsearch that nobody answers for."""
    root = cold_home(tmp_path / "home")
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    registry = Registry(root / "registry.db")
    given = {"elasticsearch": {"url": "http://127.0.0.1:1", "timeout": 1}, "delta": {"path": str(tmp_path)}}
    with registry.begin() as session:
        session.add(source_entry("shop", [BILLS]))
    with registry.begin() as session:
        for kind, settings in given.items():
            session.add(
                SinkEntry(
                    name=kind, kind=kind, source="shop", settings=settings, tables={"shop.public.bills": {}},
                    incomplete={}, incomplete_ms={}, on_schema_change="lenient", created_ms=1,
                )
            )  # fmt: skip
    return registry


@pytest.mark.parametrize(
    ("kind", "column"),
    [(kind, column) for kind, useful in USEFUL.items() for column in BILLS.by_name if column not in useful],
)
def test_a_policy_for_a_column_that_has_no_use_for_it_is_refused(
    bills: Registry, kind: str, column: str
) -> None:
    before = bills.sink(kind).settings
    policy = f"unheld.public.bills.{column}=null"
    new = ("new", "--kind", kind, "--set", policy)
    for words in (("set", kind, policy), ("check", *new), ("add", *new)):
        error = json.loads(told("sink", *words, "--json", code=2).stderr)["error"]
        assert error["code"] == "SINK_SETTINGS_INVALID"
        assert f"unheld.public.bills.{column}:" in error["message"]
        assert "take" in error["hint"]
    assert bills.sink(kind).settings == before


def test_a_policy_for_a_column_that_can_use_it_is_taken(bills: Registry) -> None:
    policies = [f"unheld.public.bills.{column}=null" for column in sorted(USEFUL["delta"])]
    told("sink", "set", "delta", *policies)
    known = bills.sink("delta").settings
    assert {known[policy.removesuffix("=null")] for policy in policies} == {"null"}
    told("sink", "set", "elasticsearch", "unheld.public.bills.doc=null", code=1)  # there is no such server


def test_a_policy_of_before_that_changes_nothing_can_be_taken_back(bills: Registry) -> None:
    """As an older version took it: nothing was kept by it."""
    with bills.begin() as session:
        entry = session.get_one(SinkEntry, "delta")
        entry.settings = {**entry.settings, "unheld.public.bills.docs": "null"}
    told("sink", "set", "delta", "unheld.public.bills.docs=refuse")
    assert bills.sink("delta").settings["unheld.public.bills.docs"] == "refuse"
