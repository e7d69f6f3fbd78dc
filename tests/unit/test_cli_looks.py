"""A command looks once, tells with and without ``--json`` the same sinks, and why a table is not well."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import home as cli_home
from headrace.cli import lag as lag_room
from headrace.cli.reasons import Trouble, lines_of
from headrace.control import lag
from headrace.control.lag import LagReport, SinkLag, SourceLag, State, TableLag
from headrace.control.registry import Registry, SinkEntry
from tests.support.cold_home import add, cold_home, told

SOURCE = SourceLag("shop", State.STREAMING, "", "", 0, 0, None, 0.0)
SINK = SinkLag("cache", "redis", "shop", State.DEGRADED, "keys are missing", "headrace lag", {}, None, None)
LOST = replace(SINK, sink="lost", kind="delta", source="gone", state=State.FAILED, reason="nobody knows it")
TABLE = TableLag(
    "shop", "public.goods", "cache", State.STREAMING, "", "", 0, None, 0, 0, 0, 0, None, None
)  # fmt: skip
BAD = replace(TABLE, table="public.orders", state=State.DEGRADED, reason="keys are missing")
SILENT = replace(TABLE, table="public.people", state=State.DEGRADED, reason="it has not told for long")


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return what has `lag` tell something, and returns how often it was asked."""
    root = cold_home(tmp_path / "home")
    add(root, "shop", "postgresql://me@db.example:5432/shop", sinks=("cache", "other"))
    add(root, "depot", "postgresql://me@db.example:5432/depot")
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    monkeypatch.setattr(lag_room, "Kafka", lambda _: None)

    def tell(*sinks: SinkLag, tables: tuple[TableLag, ...] = (TABLE,), meanwhile: Any = None) -> list[int]:
        looks: list[int] = []

        def measure(*_: object) -> LagReport:
            looks.append(1)
            if meanwhile is not None:
                meanwhile(Registry(root / "registry.db"))
            return LagReport(0, False, (SOURCE,), sinks, tables)

        for module in (lag, lag_room):
            monkeypatch.setattr(module, "measure", measure)
        return looks

    return tell


def test_a_list_looks_once_and_tells_the_same_with_json(looked: Callable[..., list[int]]) -> None:
    looks = looked(SINK, replace(SINK, sink="other"), LOST)
    said = json.loads(told("sink", "list", "--json").stdout)
    assert [one["sink"] for one in said] == ["cache", "other", "lost"]
    assert len(looks) == 1
    text = told("sink", "list").stdout
    assert all(name in text for name in ("cache", "other", "lost"))
    cache, _, lost = said
    assert cache["tables"].keys() == {"public.goods"}, "of a table that came meanwhile nothing is known"
    assert cache.keys() == lost.keys()
    assert (lost["state"], lost["reason"], lost["tables"]) == ("failed", "nobody knows it", {})
    looks.clear()
    said = json.loads(told("source", "list", "--json").stdout)
    assert {one["source"]: one["state"] for one in said} == {"shop": "streaming", "depot": "setup"}
    assert len(looks) == 1


def test_a_sink_that_goes_while_it_is_looked_at_is_passed_over(looked: Callable[..., list[int]]) -> None:
    def removed(registry: Registry) -> None:
        with registry.begin() as session:
            if (found := session.get(SinkEntry, "other")) is not None:
                session.delete(found)

    looked(SINK, meanwhile=removed)
    assert [one["sink"] for one in json.loads(told("sink", "list", "--json").stdout)] == ["cache"]


def test_a_sink_that_goes_while_it_is_shown_is_unknown(looked: Callable[..., list[int]]) -> None:
    def removed(registry: Registry) -> None:
        with registry.begin() as session:
            session.delete(session.get_one(SinkEntry, "other"))

    looked(SINK, meanwhile=removed)
    error = json.loads(told("sink", "show", "other", "--json", code=2).stderr)["error"]
    assert error["code"] == "SINK_UNKNOWN"


def test_why_a_table_is_degraded_is_told_with_its_name(looked: Callable[..., list[int]]) -> None:
    bad = replace(BAD, remedy="headrace source refresh shop")
    looked(SINK, tables=(TABLE, bad, SILENT))
    lines = [line.strip() for line in told("lag", code=1).stdout.splitlines()]
    at = lines.index("reason: public.orders at cache: keys are missing")
    assert lines[at + 1] == "remedy: headrace source refresh shop"
    assert "reason: public.people at cache: it has not told for long" in lines
    assert not [line for line in lines if line.startswith("reason: public.goods")]

    with Registry(Path(cli_home.home_of(None).root) / "registry.db").begin() as session:
        found = session.get_one(SinkEntry, "cache")
        found.tables = {**found.tables, "shop.public.people": {}}
    lines = [line.strip() for line in told("sink", "show", "cache").stdout.splitlines()]
    at = lines.index("reason: public.orders at cache: keys are missing")
    assert lines[at + 1] == "remedy: headrace source refresh shop"
    assert "reason: public.people at cache: it has not told for long" in lines
    assert "remedy: headrace lag" in lines, "the sink's own"
    assert "reason: keys are missing" not in lines, "it is told with the table's name"


def test_why_a_sink_is_late_is_told_where_nothing_is_wrong(looked: Callable[..., list[int]]) -> None:
    state, reason = State.CATCHING_UP, "5 records to apply"
    table = replace(TABLE, state=state, reason=reason)
    looked(replace(SINK, state=state, reason=reason, remedy=""), tables=(table,))
    lines = [line.strip() for line in told("sink", "show", "cache").stdout.splitlines()]
    assert "reason: 5 records to apply" in lines


def test_the_reason_of_many_tables_is_told_once() -> None:
    same = [Trouble(f"public.t{n}", "lake", State.FAILED, "it is down", "headrace up") for n in range(9)]
    assert [*lines_of(same)] == [
        ("reason", "public.t0 at lake, and 8 more: it is down"),
        ("remedy", "headrace up"),
    ]
    assert [*lines_of(same, {"it is down"})] == [("remedy", "headrace up")], "the source's row tells it"
    busy = replace(same[0], state=State.CATCHING_UP, remedy="")
    assert [*lines_of([busy])] == []
