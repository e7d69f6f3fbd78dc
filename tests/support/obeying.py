"""Servers that do as they are told, for commands whose steps count and not what servers say to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors import registry as kinds
from connectors.base import BOUNDED_CONVERTER, Capture, Left
from headrace.control import sink, sink_check, source, source_remove
from headrace.control.connect import ConnectorState
from headrace.control.kafka import Topic
from headrace.model.errors import HeadraceError
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.waiting import until

__all__ = ["GOODS", "URL", "Command", "Servers", "obeying"]

GOODS = TableSchema(TableId("public", "goods"), (Column("id", LogicalType.INT32),), ("id",))
URL = "postgresql://me@db.example/shop"


@dataclass
class Servers:
    """What a database, Connect and Kafka hold that do as they are told; the database takes its time."""

    topics: set[str] = field(default_factory=set)
    prepared: set[str] = field(default_factory=set)
    connectors: dict[str, dict[str, str]] = field(default_factory=dict)
    preparing: Event = field(default_factory=Event)
    may_go_on: Event = field(default_factory=Event)

    # of the database
    address = resolved = URL
    password, connector_class = "secret", "of.postgres"

    def tables(self, _: Sequence[str]) -> list[TableId]:
        return [GOODS.table]

    def catalogue(self, *_: object) -> list[TableSchema]:
        return [GOODS]

    def preflight(self, *_: object, **__: object) -> list[Any]:
        return []

    def refuse_taken(self, _: Capture) -> None:
        """Do as a database in which there is no slot yet."""

    def setup(self, capture: Capture) -> None:
        self.prepared.add(capture.source)
        self.preparing.set()
        until(self.may_go_on.is_set)

    def teardown(self, capture: Capture, system: str | None = None) -> Left:
        self.prepared.discard(capture.source)
        return Left()

    def hold(self, _: Capture) -> Any:
        return SimpleNamespace(system=None, timeline=None)

    def large(self, *_: object) -> tuple[TableId, ...]:
        return ()

    def properties(self, *_: object) -> dict[str, str]:
        return {}

    def select(self, _: str) -> list[Any]:
        return []

    # of Connect
    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def plugins(self) -> frozenset[str]:
        return frozenset({self.connector_class, BOUNDED_CONVERTER})

    def config(self, name: str) -> dict[str, str]:
        return self.connectors.get(name, {})

    def state(self, name: str) -> ConnectorState:
        said = "RUNNING" if name in self.connectors else "ABSENT"
        return ConnectorState(said, said, "")

    def forget_offsets(self, _: str) -> None:
        """Have none."""

    stop = resume = forget_offsets

    # of Kafka
    def names(self) -> set[str]:
        return set(self.topics)

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        return {name: f"id of {name}" for name in names}

    def ends(self, *_: object, **__: object) -> dict[tuple[str, int], tuple[int, int]]:
        return {}

    def committed(self, _: str) -> tuple[list[dict[str, Any]], int]:
        return [], 0

    def put(self, *_: object) -> None:
        """Remember nothing."""

    def create(self, what: Any, config: dict[str, str] | None = None, *, only_ask: bool = False) -> None:
        """Make topics, or a connector."""
        if isinstance(what, str):
            self.connectors[what] = config or {}
        elif not only_ask:
            self.topics |= {cast("Topic", topic).name for topic in what}

    def delete(self, what: Any) -> None:
        """Remove topics, or a connector."""
        if isinstance(what, str):
            self.connectors.pop(what, None)
        else:
            self.topics -= set(what)


def obeying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    """Yield servers that every command asks until the test ends; the database waits to be let go on."""
    servers = Servers()
    for module in (source, source_remove):
        monkeypatch.setattr(module, "Connect", lambda _: servers)
        monkeypatch.setattr(module, "Kafka", lambda _: servers)
    for room in (sink, sink_check):
        monkeypatch.setattr(room, "Kafka", lambda _: servers)
    monkeypatch.setattr(source_remove, "source_of", lambda *_: servers)
    monkeypatch.setattr(kinds, "build", lambda *_, **__: servers)
    monkeypatch.setattr(source, "look_now", lambda *_: [])
    for module in (source, sink):
        monkeypatch.setattr(module, "ensure_engine", lambda _: False)
    yield servers
    servers.may_go_on.set()


class Command(Thread):
    """A command that goes on beside others; its refusal is kept."""

    def __init__(self, does: Callable[..., object], *words: object, **named: object) -> None:
        super().__init__(daemon=True)
        self.code = ""
        self.said: list[str] = []
        self._call: Callable[[], object] = lambda: does(*words, **named, say=self.said.append)
        self.start()

    def run(self) -> None:
        try:
            self._call()
        except HeadraceError as error:
            self.code = error.code
