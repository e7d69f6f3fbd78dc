"""``sink check`` with the options of ``sink add`` says what that would say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import home as cli_home
from headrace.control import sink_check
from headrace.control.registry import Adding, Registry, SinkEntry, SourceEntry
from headrace.model.claim import Claim
from headrace.model.errors import SinkError
from sinks import registry as kinds
from sinks.memory import MemorySink
from tests.support.cold_home import TABLES, add, cold_home, told


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with a source of which Kafka has everything."""
    root = cold_home(tmp_path / "home")
    add(root, "shop", "postgresql://me@db.example:5432/shop")
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    monkeypatch.setattr(sink_check, "_history", lambda *_: ())
    return root


def words(home: Path) -> tuple[str, ...]:
    return ("sink", "check", "here", "--kind", "memory", "--set", f"store={home}", "--json")


def checked(*arguments: str, code: int = 0) -> dict[str, str]:
    said: dict[str, Any] = json.loads(told(*arguments, code=code).stdout)
    assert said["fit"] == (code == 0)
    return {one["code"]: one["severity"] for one in said["findings"]}


def test_a_target_of_another_installation_is_a_warning_to_whoever_takes_it_over(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kinds.build("memory", "here", {"store": str(home)})
    assert isinstance(store, MemorySink)
    assert not store.claim(TABLES[:1], Claim("h", "theirs", "/their/home", True, 1), {})
    assert checked(*words(home), code=1)["SINK_TARGET_TAKEN"] == "error"
    assert checked(*words(home), "--take-over")["SINK_TARGET_TAKEN"] == "warning"

    def ahead(*_: object) -> None:
        raise SinkError("It holds later rows.", code="SINK_TARGET_AHEAD", hint="add --take-over")

    monkeypatch.setattr(sink_check, "refuse_ahead", ahead)
    assert checked(*words(home), code=1)["SINK_TARGET_AHEAD"] == "error"
    found = json.loads(told(*words(home), "--take-over").stdout)["findings"]
    (one,) = (one for one in found if one["code"] == "SINK_TARGET_AHEAD")
    assert (one["severity"], one["hint"]) == ("warning", ""), "what it would tell is given already"


def test_a_sink_of_this_installation_is_not_taken_over(home: Path) -> None:
    with Registry(home / "registry.db").begin() as session:
        session.add(
            SinkEntry(
                name="other", kind="memory", source="shop", settings={"store": str(home)},
                tables={"shop.public.goods": {"store": str(home), "shadow": ""}}, incomplete={},
                incomplete_ms={}, on_schema_change="lenient", created_ms=1,
            )
        )  # fmt: skip
    facts = dict(kinds.build("memory", "here", {"store": str(home)}).target(TABLES[0]).facts)
    with Registry(home / "registry.db").begin() as session:
        session.get_one(SinkEntry, "other").tables = {"shop.public.goods": facts}
    assert checked(*words(home), "--take-over", code=1)["SINK_TARGET_TAKEN"] == "error"


def test_a_sink_that_was_begun_with_another_policy_is_another_one(home: Path) -> None:
    held: dict[str, dict[str, str]] = {f"shop.{schema.table}": {} for schema in TABLES}
    with Registry(home / "registry.db").begin() as session:
        session.add(
            SinkEntry(
                name="here", kind="memory", source="shop", settings={"store": str(home)}, tables=held,
                incomplete={}, incomplete_ms={}, on_schema_change="ignore", created_ms=1,
                adding=Adding.REGISTERED.value,
            )
        )  # fmt: skip
    error = json.loads(told(*words(home), code=2).stderr)["error"]
    assert error["code"] == "SINK_EXISTS"
    checked(*words(home), "--on-schema-change", "ignore")


def test_a_source_that_is_being_removed_takes_no_sink(home: Path) -> None:
    with Registry(home / "registry.db").begin() as session:
        session.get_one(SourceEntry, "shop").adding = Adding.GOING.value
    error = json.loads(told(*words(home), code=2).stderr)["error"]
    assert (error["code"], error["hint"]) == ("SOURCE_GOING", "headrace source remove shop")
