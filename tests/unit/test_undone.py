"""Targets that a killed or refused command has made before it registered them have a name, and go by that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.config.pipeline import write_private
from headrace.control import lag, sink, source, would_go
from headrace.control.context import Context
from headrace.control.registry import Adding, Registry
from headrace.control.sink_remove import remove_made
from headrace.control.undone import begun_sinks, begun_targets, note_targets, noted_topics
from headrace.model.errors import HeadraceError, SinkUnavailable
from headrace.model.schema import TableId, TableSchema
from sinks.memory import MemorySink
from tests.support.entries import source_entry
from tests.support.killed import Dropping, Killed, killing
from tests.support.obeying import GOODS, URL, Servers, obeying

FURTHER = TableSchema(TableId("public", "more"), GOODS.columns, GOODS.key)
PURGE = "headrace sink remove cache --purge"


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    yield from obeying(monkeypatch)


@pytest.fixture
def registry(context: Context) -> Registry:
    registry = Registry(context.registry)
    with registry.begin() as session:
        session.add(source_entry("shop", [GOODS]))
    return registry


def killed(context: Context, patch: pytest.MonkeyPatch, step: str, store: str) -> None:
    """Have an ``add`` of a sink end when a step of it has returned, as by a kill."""
    with patch.context() as patched:
        patched.setattr(sink, "ExitStack", Dropping)
        patched.setattr(sink, step, killing(getattr(sink, step)))
        with pytest.raises(Killed):
            add(context, store)


def add(context: Context, store: str) -> None:
    sink.add(context, "cache", "memory", settings={"store": store}, source="shop", wait=False)


def there(store: str) -> bool:
    return MemorySink("cache", MemorySink.Config(store=store)).exists(GOODS)


STEPS = ("note_targets", "create", "begin", "marks_to_pass")


@pytest.mark.parametrize("step", STEPS)
def test_what_a_killed_add_of_a_sink_has_made_is_told_and_goes_by_its_name(
    context: Context, servers: Servers, registry: Registry, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = f"killed at {step}"
    killed(context, monkeypatch, step, store)
    assert registry.sinks() == []
    assert [(one.sink, one.state, one.remedy) for one in told(context, monkeypatch)] == [
        ("cache", lag.State.FAILED, PURGE)
    ]
    assert would_go.of_sink(context, "cache", purge=True)["target"] == [f"shop.public.goods (store {store})"]
    sink.remove(context, "cache", purge=True)
    assert not there(store)
    assert (begun_sinks(registry), noted_topics(registry, "cache")) == ({}, [])
    with pytest.raises(HeadraceError, match="no sink"):
        sink.remove(context, "cache")


def told(context: Context, patch: pytest.MonkeyPatch) -> tuple[lag.SinkLag, ...]:
    with patch.context() as patched:
        patched.setattr(lag, "observe", lambda *_: ([], []))
        return lag.measure(context).sinks


@pytest.mark.parametrize("step", STEPS)
def test_a_sink_whose_add_was_killed_before_it_registered_is_given_again(
    context: Context, servers: Servers, registry: Registry, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = f"again after {step}"
    killed(context, monkeypatch, step, store)
    with pytest.raises(HeadraceError) as refused:
        add(context, "another")
    assert (refused.value.code, refused.value.hint) == ("SINK_EXISTS", "headrace sink show cache")
    add(context, store)
    assert [entry.name for entry in registry.sinks()] == ["cache"]
    assert noted_topics(registry, "cache") == []
    assert there(store)


def test_a_file_with_a_password_goes_by_the_name_of_the_add_that_was_killed(
    context: Context, servers: Servers, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is not asked: nothing was made there, and the password may not be in its file yet."""
    secret = context.sink_secrets / "cache.password"

    def refuses(*_: object) -> None:
        raise AssertionError("the store was opened")

    monkeypatch.setattr("sinks.registry.secret_names", lambda _: {"store"})
    monkeypatch.setattr(sink, "seal", lambda *_: write_private(secret, "s3cret"))
    killed(context, monkeypatch, "seal", "sealed")
    assert [one.remedy for one in told(context, monkeypatch)] == [PURGE]
    assert would_go.of_sink(context, "cache", purge=True)["file"] == [str(secret)]
    with monkeypatch.context() as patch:
        patch.setattr("headrace.control.sink_remove.opened_sink", refuses)
        sink.remove(context, "cache", purge=True)
    assert not secret.exists()
    assert begun_sinks(registry) == {}


def test_a_registration_whose_answer_is_lost_is_taken_back(
    context: Context, servers: Servers, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = sink._register

    def loses(*arguments: Any) -> None:
        register(*arguments)
        raise SinkUnavailable("it does not answer", code="SINK_NOT_STARTED")

    monkeypatch.setattr(sink, "_register", loses)
    with pytest.raises(SinkUnavailable):
        add(context, "lost")
    assert registry.sinks() == []
    assert begun_sinks(registry) == {}
    assert not there("lost")


def test_a_target_that_was_there_before_stays_when_a_killed_add_is_removed(
    context: Context, servers: Servers, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemorySink("cache", MemorySink.Config(store="of before")).prepare(GOODS)
    killed(context, monkeypatch, "create", "of before")
    sink.remove(context, "cache", purge=True)
    assert there("of before")
    assert begun_sinks(registry) == {}


def silent(_: MemorySink, schema: TableSchema) -> None:
    raise SinkUnavailable("it does not answer", code="SINK_NOT_STARTED")


def test_what_a_refused_add_of_a_sink_could_not_take_back_is_told_and_goes_by_its_name(
    context: Context, servers: Servers, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(MemorySink, "drop", silent)
        patch.setattr(sink, "ensure_engine", lambda _: silent(MemorySink("x"), GOODS))
        with pytest.raises(HeadraceError) as refused:
            add(context, "silent")
    assert refused.value.code == "SINK_NOT_STARTED"
    assert registry.sinks() == []
    assert [one.remedy for one in told(context, monkeypatch)] == [PURGE]
    sink.remove(context, "cache", purge=True)
    assert not there("silent")
    assert begun_sinks(registry) == {}


def test_a_refused_add_leaves_no_note(
    context: Context, servers: Servers, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemorySink("cache", MemorySink.Config(store="refused")).prepare(GOODS)
    with monkeypatch.context() as patch:
        patch.setattr(sink, "ensure_engine", lambda _: silent(MemorySink("x"), GOODS))
        with pytest.raises(HeadraceError):
            add(context, "refused")
    assert there("refused")
    assert begun_sinks(registry) == {}


def test_a_target_that_was_begun_for_a_further_table_goes_with_its_sink(
    context: Context, servers: Servers, registry: Registry
) -> None:
    """As of a `tables add` that was killed."""
    add(context, "further")
    (entry,) = registry.sinks()
    further = source_entry("shop", [FURTHER]).tables
    note_targets(registry, entry, {"shop.public.more": {}}, further, {FURTHER.table})
    store = MemorySink("cache", MemorySink.Config(store="further"))
    store.prepare(FURTHER)
    assert [table.topic for table in begun_targets(registry, "cache")] == ["shop.public.more"]
    sink.remove(context, "cache", purge=True)
    assert not store.exists(FURTHER)
    assert noted_topics(registry, "cache") == []


def test_who_waits_no_more_for_a_new_source_leaves_it_at_work(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the wait and nothing else: sinks may be added, and the same command waits on."""
    servers.may_go_on.set()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(source, "wait_streaming", interrupted)
        with pytest.raises(KeyboardInterrupt):
            source.add(context, "shop", URL)
    registry = Registry(context.registry)
    (first,) = registry.sources()
    assert first.adding == Adding.STARTED.value
    add(context, "interrupted")
    monkeypatch.setattr(source, "wait_streaming", lambda *_, **__: None)
    monkeypatch.setattr(source, "wait_loaded", lambda *_: None)
    assert source.add(context, "shop", URL).placeholder == first.placeholder
    assert servers.connectors.keys() == {"headrace_shop"}


def test_what_another_sink_has_in_the_place_of_a_begun_one_stays(
    context: Context, servers: Servers, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(context, monkeypatch, "create", "taken since")
    with pytest.raises(HeadraceError) as refused:
        sink.add(context, "other", "memory", settings={"store": "taken since"}, source="shop", wait=False)
    assert (refused.value.code, PURGE in refused.value.hint) == ("SINK_TARGET_TAKEN", True)
    with monkeypatch.context() as patch:  # as by a command of an older version
        patch.setattr(sink, "refuse_shared", lambda *_: None)
        sink.add(context, "other", "memory", settings={"store": "taken since"}, source="shop", wait=False)
    sink.remove(context, "cache", purge=True)
    assert there("taken since")


def test_a_target_of_a_killed_command_goes_when_the_next_one_is_refused(
    context: Context, servers: Servers, registry: Registry
) -> None:
    """As of a `tables add`: the second command finds it there, and has not made it."""
    add(context, "refused later")
    (entry,) = registry.sinks()
    further = source_entry("shop", [FURTHER]).tables
    store = MemorySink("cache", MemorySink.Config(store="refused later"))
    for new in ({FURTHER.table}, set[TableId]()):
        note_targets(registry, entry, {"shop.public.more": {}}, further, new)
        store.prepare(FURTHER)
    remove_made(context, entry, further)
    assert not store.exists(FURTHER)
    assert there("refused later")
    assert noted_topics(registry, "cache") == []


def test_letters_of_an_earlier_sink_stay_when_a_begun_one_goes(
    context: Context, servers: Servers, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = context.dead_letters / "cache"
    letters.mkdir(parents=True)
    killed(context, monkeypatch, "create", "letters")
    add(context, "letters")
    assert letters.exists()
