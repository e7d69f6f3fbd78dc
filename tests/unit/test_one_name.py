"""Two commands of the same name at once: one waits for the other, and takes nothing of the other's away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from headrace.config.source import SourceSettings
from headrace.control import epochs, sink, sink_tables, source
from headrace.control.adding import note
from headrace.control.alone import alone
from headrace.control.capture import secret_of
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Adding, Registry, SinkEntry
from headrace.control.targets import create
from headrace.control.verdicts import first_loaded
from headrace.model.errors import HeadraceError
from sinks.memory import MemorySink
from tests.support.entries import source_entry
from tests.support.obeying import GOODS, URL, Command, Servers, obeying
from tests.support.waiting import ended, until


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    yield from obeying(monkeypatch)


def test_who_adds_a_source_beside_another_of_its_name_takes_nothing_away(
    context: Context, servers: Servers
) -> None:
    first = Command(source.add, context, "shop", URL, wait=False)
    until(servers.preparing.is_set)
    second = Command(source.add, context, "shop", URL, wait=False)
    other = Command(source.remove, context, "depot")
    ended(other)
    assert other.code == "SOURCE_UNKNOWN"
    until(lambda: second.said or not second.is_alive())
    servers.may_go_on.set()
    ended(first)
    ended(second)
    assert (first.code, second.code) == ("", "SOURCE_EXISTS")
    assert second.said[0] == f"shop: waiting for `headrace source add shop` (process {os.getpid()})"
    assert [entry.name for entry in Registry(context.registry).sources()] == ["shop"]
    assert servers.prepared == {"shop"}
    assert "shop.public.goods" in servers.topics
    assert servers.connectors.keys() == {"headrace_shop"}
    assert secret_of(context, "shop").read() == "secret"


def test_who_removes_a_source_waits_until_it_is_added(context: Context, servers: Servers) -> None:
    servers.may_go_on.set()
    source.add(context, "shop", URL, wait=False)
    removing = [Command(source.remove, context, "shop") for _ in range(2)]
    for command in removing:
        ended(command)
    assert sorted(command.code for command in removing) == ["", "SOURCE_UNKNOWN"]
    assert (servers.prepared, servers.connectors) == (set(), {})
    assert not secret_of(context, "shop").path.exists()


def test_who_removes_a_source_waits_for_who_works_on_what_it_captures(
    context: Context, servers: Servers
) -> None:
    """A recovery, or a command that takes tables in, would make anew what goes."""
    servers.may_go_on.set()
    source.add(context, "shop", URL, wait=False)
    with alone(context, "shop", "`headrace recover shop`", print):
        removing = Command(source.remove, context, "shop")
        until(lambda: removing.said or not removing.is_alive())
        assert servers.connectors.keys() == {"headrace_shop"}
    ended(removing)
    assert removing.said[0] == f"shop: waiting for `headrace recover shop` (process {os.getpid()})"
    assert (removing.code, servers.prepared) == ("", set())


def test_what_another_has_registered_meanwhile_is_that_ones(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that heeds no lock, such as one of an older version, is told by the registry."""
    servers.may_go_on.set()
    registry = Registry(context.registry)

    def given(*_: object) -> dict[str, int]:
        with registry.begin() as session:
            session.add(source_entry("shop", [GOODS]))
        return {"shop.public.goods": 1}

    monkeypatch.setattr(source, "next_epochs", given)
    with pytest.raises(HeadraceError) as refused:
        source.add(context, "shop", URL, wait=False)
    assert refused.value.code == "SOURCE_EXISTS"
    assert [entry.placeholder for entry in registry.sources()] == ["p"]
    assert servers.prepared == {"shop"}
    assert "shop.public.goods" in servers.topics


def test_a_refused_add_takes_back_what_it_made_and_nothing_else(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.may_go_on.set()
    servers.topics.add("shop.public.goods")  # empty, and of somebody else

    def fails(*_: object) -> None:
        raise HeadraceError("no", code="CONNECTOR_FAILED")

    monkeypatch.setattr(source, "look_now", fails)
    with pytest.raises(HeadraceError):
        source.add(context, "shop", URL, wait=False)
    assert Registry(context.registry).sources() == []
    assert servers.prepared == set()
    assert {topic for topic in servers.topics if topic != epochs.LEDGER} == {"shop.public.goods"}
    assert not secret_of(context, "shop").path.exists()


@pytest.mark.parametrize("step", Adding)
def test_an_add_that_was_killed_is_given_again_as_it_stands(
    context: Context, servers: Servers, step: Adding
) -> None:
    """What is at work is gone on with; of anything else nothing is left before it begins anew."""
    servers.may_go_on.set()
    registry = Registry(context.registry)
    first = source.add(context, "shop", URL, wait=False)
    note(registry, first, step)
    with pytest.raises(HeadraceError) as refused:
        source.add(context, "shop", URL, settings=SourceSettings(heartbeat_ms=500), wait=False)
    assert refused.value.code == "SOURCE_EXISTS"
    again = source.add(context, "shop", URL, wait=False)
    assert (again.placeholder == first.placeholder) is (step is Adding.STARTED)
    assert servers.prepared == {"shop"}
    assert servers.connectors.keys() == {"headrace_shop"}
    assert secret_of(context, "shop").read() == "secret"
    with pytest.raises(HeadraceError) as refused:
        source.add(context, "shop", URL, wait=False)
    assert refused.value.code == "SOURCE_EXISTS"


def test_what_a_killed_add_has_registered_stays_when_sinks_read_it(
    context: Context, servers: Servers
) -> None:
    servers.may_go_on.set()
    registry = Registry(context.registry)
    note(registry, source.add(context, "shop", URL, wait=False), Adding.REGISTERED)
    sink.add(context, "cache", "memory", settings={"store": "of a begun one"}, source="shop", wait=False)
    with pytest.raises(HeadraceError) as refused:
        source.add(context, "shop", URL, wait=False)
    assert refused.value.code == "SOURCE_EXISTS"
    assert [entry.name for entry in registry.sinks()] == ["cache"]


def test_a_source_that_loaded_after_its_add_was_broken_off_is_never_taken_back(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command waits once more; what it is refused for now is none of the source's rows."""
    servers.may_go_on.set()
    registry = Registry(context.registry)
    first = source.add(context, "shop", URL, wait=False)
    first_loaded(registry, first, ())
    note(registry, first, Adding.STARTED)

    def fails(*_: object, **__: object) -> None:
        raise HeadraceError("no", code="CONNECTOR_FAILED")

    monkeypatch.setattr(source, "wait_streaming", fails)
    with pytest.raises(HeadraceError) as refused:
        source.add(context, "shop", URL)
    assert refused.value.code == "CONNECTOR_FAILED"
    assert [entry.placeholder for entry in registry.sources()] == [first.placeholder]
    assert (servers.prepared, set(servers.connectors)) == ({"shop"}, {"headrace_shop"})
    note(registry, first, Adding.REGISTERED)
    with pytest.raises(HeadraceError) as refused:
        source.add(context, "shop", URL)
    assert refused.value.code == "SOURCE_EXISTS"


@pytest.mark.parametrize("step", Adding)
def test_a_sink_whose_add_was_killed_is_given_again_as_it_stands(
    context: Context, servers: Servers, step: Adding
) -> None:
    registry = Registry(context.registry)
    with registry.begin() as session:
        session.add(source_entry("shop", [GOODS]))

    def add(store: str) -> SinkEntry:
        settings = {"store": store}
        return sink.add(context, "cache", "memory", settings=settings, source="shop", wait=False)[0]

    store = f"of {step.value}"
    first = add(store)
    note(registry, first, step)
    with pytest.raises(HeadraceError) as refused:
        add("another")
    assert refused.value.code == "SINK_EXISTS"
    again = add(store)
    assert (again.created_ms == first.created_ms) is (step is Adding.STARTED)
    assert MemorySink("cache", MemorySink.Config(store=store)).exists(GOODS)
    assert (context.pipelines / "cache.json").exists()
    with pytest.raises(HeadraceError) as refused:
        add(store)
    assert refused.value.code == "SINK_EXISTS"


def test_who_adds_a_sink_beside_another_of_its_name_takes_nothing_away(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Registry(context.registry).begin() as session:
        session.add(source_entry("shop", [GOODS]))
    begins, may_go_on = Event(), Event()

    def slowly(*arguments: Any) -> None:
        create(*arguments)
        begins.set()
        until(may_go_on.is_set)

    monkeypatch.setattr(sink, "create", slowly)
    words = {"settings": {"store": "one name"}, "source": "shop", "wait": False}
    first = Command(sink.add, context, "cache", "memory", **words)
    until(begins.is_set)
    second = Command(sink.add, context, "cache", "memory", **words)
    until(lambda: second.said or not second.is_alive())
    may_go_on.set()
    ended(first)
    ended(second)
    assert (first.code, second.code) == ("", "SINK_EXISTS")
    registry = Registry(context.registry)
    assert [entry.name for entry in registry.sinks()] == ["cache"]
    store = MemorySink("cache", MemorySink.Config(store="one name"))
    assert store.exists(GOODS)
    assert (context.pipelines / "cache.json").exists()


def test_a_sink_that_another_has_registered_meanwhile_is_that_ones(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(context.registry)
    with registry.begin() as session:
        session.add(source_entry("shop", [GOODS]))
    trimmed = sink_tables.trimmed

    def registers(kafka: Kafka, *told: Any) -> dict[str, Any]:
        entry = SinkEntry(
            name="cache", kind="memory", source="shop", settings={}, tables={}, incomplete={},
            incomplete_ms={}, on_schema_change="lenient", created_ms=1,
        )  # fmt: skip
        with registry.begin() as session:
            session.add(entry)
        return trimmed(kafka, *told)

    monkeypatch.setattr(sink, "trimmed", registers)
    with pytest.raises(HeadraceError) as refused:
        sink.add(context, "cache", "memory", settings={"store": "meanwhile"}, source="shop", wait=False)
    assert refused.value.code == "SINK_EXISTS"
    assert [entry.created_ms for entry in registry.sinks()] == [1]
    assert MemorySink("cache", MemorySink.Config(store="meanwhile")).exists(GOODS)
