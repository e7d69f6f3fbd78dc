"""A sink that takes its targets back from another installation is not green over what that has left there."""

from __future__ import annotations

import uuid

import pytest

from headrace.config.pipeline import write_private
from headrace.control import claims, sink
from headrace.control.context import Context
from headrace.control.pipelines import pipeline_of, spec_path
from headrace.control.registry import Registry, SinkEntry
from headrace.control.verdicts import TAKEN_BACK, State, healed, standing
from headrace.model.claim import Claim
from headrace.model.errors import SinkError
from headrace.model.life import life_of
from headrace.model.outcome import STALE
from headrace.model.position import Position
from headrace.model.schema import TableSchema
from sinks.contract.story import ORDERS, at, order
from sinks.memory import MemorySink
from tests.support.entries import source_entry

TOPIC = "shop.public.orders"
LATER = 2**53


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "ensure_engine", lambda _: None)


class Home:
    """An installation that mirrors a source into a store."""

    def __init__(self, context: Context, store: str, *, epoch: int) -> None:
        self.context = context
        self.registry = Registry(context.registry)
        entry = SinkEntry(
            name="cache",
            kind="memory",
            source="shop",
            settings={"store": store},
            tables={TOPIC: {}},
            incomplete={},
            incomplete_ms={},
            on_schema_change="lenient",
            created_ms=1,
        )
        with self.registry.begin() as session:
            session.add(source_entry("shop", [ORDERS], epoch=epoch, loaded_ms=2))
            session.flush()
            session.add(entry)
        self.registry.epochs_begin_above(TOPIC, epoch)
        self.entry, self.source = entry, self.registry.source("shop")
        path = spec_path(context, "cache")
        path.parent.mkdir(parents=True)
        spec = pipeline_of(context, self.source, entry, self.source.tables)
        write_private(path, spec.model_dump_json())

    def take_over(self) -> None:
        sink.resume(self.context, "cache", take_over=True)

    def told(self) -> list[tuple[str, str, str]]:
        return [(found.code, found.state, found.remedy) for found in standing(self.registry, "shop")]


@pytest.fixture
def store() -> MemorySink:
    made = MemorySink("cache", MemorySink.Config(store=uuid.uuid4().hex))
    made.prepare(ORDERS)
    return made


@pytest.fixture
def home(context: Context, store: MemorySink) -> Home:
    return Home(context, store.config.store, epoch=1)


def claimed(store: MemorySink, by: str) -> None:
    store.claim([ORDERS], Claim.new("theirs", by, engine=True), store.claims([ORDERS]))


def of(epoch: int, offset: int) -> Position:
    return Position(epoch, offset)


WRONG = [(TAKEN_BACK, State.RESYNC_REQUIRED.value, "headrace recover shop")]


def test_what_another_installation_has_left_is_wrong_until_a_recovery(home: Home, store: MemorySink) -> None:
    theirs = home.registry.next_epoch("another") + 5
    store.apply(ORDERS, [order(1, of(theirs, 1))])
    claimed(store, "elsewhere")
    home.take_over()
    assert home.told() == WRONG
    assert store.claims([ORDERS])[ORDERS.table].home == claims.installation(home.context)
    # What it reads again, beside the stream too, is older than what stands there.
    assert store.apply(ORDERS, [order(1, of(1, 9))]) == [STALE]
    healed(home.registry, "shop", TOPIC, "cache", LATER)
    assert home.told() == WRONG
    # The epoch of a recovery, which takes the verdict back, is above it.
    assert home.registry.next_epoch(TOPIC) > theirs


def test_of_a_target_without_rows_the_next_epoch_is_above_those_of_this_hour(
    home: Home, store: MemorySink
) -> None:
    """Deletes of the other count as later, too, and nobody lists them."""
    this_hour = home.registry.next_epoch("another")
    claimed(store, "elsewhere")
    home.take_over()
    assert home.registry.next_epoch(TOPIC) > this_hour


def test_a_version_that_somebody_has_made_up_uses_up_no_epochs(home: Home, store: MemorySink) -> None:
    store.apply(ORDERS, [order(1, of(500_000, 1))])
    claimed(store, "elsewhere")
    home.take_over()
    assert home.registry.next_epoch(TOPIC) < 100_000
    assert home.told() == WRONG


def test_a_copy_of_this_installation_has_left_nothing_wrong(home: Home, store: MemorySink) -> None:
    store.apply(ORDERS, [order(1, at(1))])
    claimed(store, claims.installation(home.context))
    home.take_over()
    assert home.told() == []


def test_it_is_said_before_the_claim_is_made(
    home: Home, store: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: MemorySink, schemas: list[TableSchema], *__: object) -> list[object]:
        return [schema.table for schema in schemas]

    claimed(store, "elsewhere")
    monkeypatch.setattr(MemorySink, "claim", lost)
    with pytest.raises(SinkError) as caught:
        home.take_over()
    assert caught.value.code == "SINK_TARGET_TAKEN"
    assert home.told() == WRONG


def test_a_sink_that_is_removed_with_its_targets_leaves_no_word(home: Home, store: MemorySink) -> None:
    store.settle({(life_of(TOPIC, "x"), 0): 1})
    claimed(store, "elsewhere")
    home.take_over()
    sink.remove(home.context, "cache", purge=True)
    assert home.told() == []
    assert not store.exists(ORDERS)
