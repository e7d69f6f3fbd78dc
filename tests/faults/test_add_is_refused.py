"""`source add`, `sink add` are refused after each step: nothing is left, and the same command works then."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.config.source import SourceSettings
from headrace.control import sink, source
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.model.errors import StackError
from tests.faults.test_add_is_killed import GOODS, SINK_STEPS, SOURCE_STEPS
from tests.support.database import Database, fresh_database
from tests.support.leftovers import left_by_sink, left_by_source
from tests.support.mirror import store_settings
from tests.support.stack import RunningStack
from tests.support.waiting import settle

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "turned"
BEAT = SourceSettings(heartbeat_ms=300)


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as database:
        database.run(*GOODS)
        yield database
        for entry in Registry(context.registry).sinks(NAME):
            sink.remove(context, entry.name, purge=True)
        if NAME in [entry.name for entry in Registry(context.registry).sources()]:
            source.remove(context, NAME)


def refusing(patch: pytest.MonkeyPatch, step: str) -> None:
    """Have a step fail when all that it does is done, as one whose answer is lost."""
    module, _, name = step.partition(":")
    *owners, last = name.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    call = getattr(owner, last)

    def fails(*arguments: Any, **named: Any) -> None:
        patch.setattr(owner, last, call)  # what takes it back may need it
        call(*arguments, **named)
        raise StackError(f"{last} is refused", code="CONNECTOR_REFUSED")

    patch.setattr(owner, last, fails)


@pytest.mark.parametrize("step", SOURCE_STEPS)
def test_source_add_is_refused(
    context: Context, database: Database, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    refusing(monkeypatch, step)
    with pytest.raises(StackError):
        source.add(context, NAME, database.dsn, settings=BEAT)
    assert left_by_source(context, database, NAME) == {}
    source.add(context, NAME, database.dsn, settings=BEAT)
    assert NAME in [entry.name for entry in Registry(context.registry).sources()]


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
