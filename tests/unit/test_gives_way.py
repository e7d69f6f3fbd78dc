"""The application goes first, whatever keeps the looks at its database waiting."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.control import watcher
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.model.errors import SourceError, StackError
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry
from tests.support.waiting import ended, until

TABLE = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32),), ("id",))


class _Watch:
    """A database in which somebody waits for the connector, once."""

    def __init__(self) -> None:
        self.asked = 0

    def give_way(self) -> int:
        self.asked += 1
        return int(self.asked == 1)

    def close(self) -> None: ...


def test_sessions_are_ended_while_a_look_waits_for_others(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, watch, answers = Registry(context.registry), _Watch(), threading.Event()
    with registry.begin() as session:
        session.add(source_entry("shop", [TABLE]))

    def source_of(*_: object) -> Any:
        return type("Source", (), {"watch": lambda *_: watch})()

    def hangs(*_: object) -> None:
        until(answers.is_set)
        raise SourceError("The database does not answer.", code="SOURCE_UNREACHABLE")

    monkeypatch.setattr(watcher, "capture_of", lambda *_: None)
    monkeypatch.setattr(watcher, "source_of", source_of)
    monkeypatch.setattr(watcher, "_look", hangs)
    for pause in ("LOOKS_EVERY_S", "_GIVES_WAY_EVERY_S"):
        monkeypatch.setattr(watcher, pause, 0.01)
    guard = watcher._Guard(context, "shop")
    guard.start()
    try:
        until(lambda: watch.asked > 3)
        told = [entry.event for entry in registry.journal("source shop")]
        assert told.count("connector's reading broken off") == 1
    finally:
        guard.over.set()
        answers.set()
        ended(guard)


def test_no_connector_is_let_go_on_that_could_not_be_told_what_is_left_out_and_a_gap_is_noted_all_the_same(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[str]()

    def gap(*_: object, goes_on: bool) -> None:
        done.append("gap, connectors go on" if goes_on else "gap")

    def untold(*_: object) -> bool:
        done.append("not told")
        raise StackError("Connect does not answer.", code="CONNECT_UNREACHABLE")

    monkeypatch.setattr(watcher._Guard, "_gap", gap)
    guard, nothing = watcher._Guard(context, "shop"), cast("Any", SimpleNamespace())
    sight = cast("Any", SimpleNamespace(renamed={TableId("public", "users"): ("pw_hash",)}))
    monkeypatch.setattr(watcher, "keep_out", lambda *_: False)
    guard._heed(nothing, nothing, sight)
    monkeypatch.setattr(watcher, "keep_out", untold)
    with pytest.raises(StackError):
        guard._heed(nothing, nothing, sight)
    monkeypatch.setattr(watcher, "keep_out", lambda *_: True)
    guard._heed(nothing, nothing, sight)
    assert done == ["gap", "not told", "gap", "gap, connectors go on"]
