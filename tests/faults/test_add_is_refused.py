"""`source add`, `sink add` are refused after each step: nothing is left, and the same command works then."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.control.source_remove import stop_and_forget
from headrace.model.errors import SourceError, StackError, UsageError
from tests.faults.test_add_is_killed import (
    BEAT,
    LAST_STEPS,
    SHOP,
    SINK_STEPS,
    SOURCE_STEPS,
    settings_of,
    states,
)
from tests.support.database import Database, fresh_database
from tests.support.leftovers import left_by_sink, left_by_source
from tests.support.mirror import store_settings
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "turned"


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as database:
        database.run(*SHOP)
        yield database
        for entry in Registry(context.registry).sinks(NAME):
            sink.remove(context, entry.name, purge=True)
        if NAME in [entry.name for entry in Registry(context.registry).sources()]:
            source.remove(context, NAME)


def refusing(patch: pytest.MonkeyPatch, step: str) -> None:
    """Have a step fail when all that it does is done, as one whose answer is lost."""
    place, *of_several = step.split("/")
    module, _, name = place.partition(":")
    *owners, last = name.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    call = getattr(owner, last)

    def fails(*arguments: Any, **named: Any) -> None:
        patch.setattr(owner, last, call)  # what takes it back may need it
        if of_several:
            *others, several = arguments
            arguments = (*others, several[:1])
        call(*arguments, **named)
        raise StackError(f"{last} is refused", code="CONNECTOR_REFUSED")

    patch.setattr(owner, last, fails)


@pytest.mark.parametrize("step", SOURCE_STEPS)
def test_source_add_is_refused(
    context: Context, database: Database, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    settings = settings_of(step)
    refusing(monkeypatch, step)
    with pytest.raises(StackError):
        source.add(context, NAME, database.dsn, settings=settings)
    assert left_by_source(context, database, NAME) == {}
    source.add(context, NAME, database.dsn, settings=settings)
    assert NAME in [entry.name for entry in Registry(context.registry).sources()]


@pytest.mark.parametrize("step", LAST_STEPS)
def test_what_fails_when_a_source_is_added_takes_nothing_back(
    context: Context, database: Database, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    settings = settings_of(step)
    refusing(monkeypatch, step)
    with pytest.raises(StackError):
        source.add(context, NAME, database.dsn, settings=settings)
    until(lambda: states(context)[NAME] is lag.State.STREAMING)
    with pytest.raises(UsageError, match="already"):
        source.add(context, NAME, database.dsn, settings=settings)


def test_a_source_from_which_a_sink_reads_by_now_is_kept(
    context: Context, database: Database, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        sink.add(context, NAME, "redis", settings=store_settings(stack, NAME)["redis"], source=NAME)
        raise SourceError("the database was started anew", code="CONNECTOR_FAILED")

    with monkeypatch.context() as patch:
        patch.setattr(source, "wait_streaming", fails)
        with pytest.raises(SourceError) as refused:
            source.add(context, NAME, database.dsn, settings=BEAT)
    assert refused.value.code == "CONNECTOR_FAILED"
    source.add(context, NAME, database.dsn, settings=BEAT)
    settle(context)


def test_no_sink_is_added_to_a_source_that_is_being_removed(
    context: Context, database: Database, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.add(context, NAME, database.dsn, settings=BEAT)
    settings = store_settings(stack, NAME)["redis"]
    refused: list[str] = []

    def meanwhile(*arguments: Any) -> None:
        with pytest.raises(UsageError) as told:
            sink.add(context, NAME, "redis", settings=settings, source=NAME)
        refused.append(told.value.code)
        stop_and_forget(*arguments)

    monkeypatch.setattr("headrace.control.source_remove.stop_and_forget", meanwhile)
    source.remove(context, NAME)
    assert refused == ["SOURCE_GOING"]
    assert left_by_source(context, database, NAME) == {}


@pytest.mark.parametrize("kind", ["elasticsearch", "redis", "delta"])
def test_sink_add_is_refused(
    context: Context, database: Database, stack: RunningStack, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    settings = store_settings(stack, NAME)[kind]
    lake = stack.endpoints.lake_path / NAME
    source.add(context, NAME, database.dsn, settings=BEAT)
    for step in SINK_STEPS:
        with monkeypatch.context() as patch:
            refusing(patch, step)
            with pytest.raises(StackError):
                sink.add(context, NAME, kind, settings=settings, source=NAME)
        assert (step, left_by_sink(context, stack, NAME, NAME, lake)) == (step, {})
    sink.add(context, NAME, kind, settings=settings, source=NAME)
    settle(context)
