"""A name that is given again, and sources that come and go beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.config.source import SourceSettings
from headrace.control import lag, source, streaming
from headrace.control.capture import capture_of
from headrace.control.context import Context
from headrace.control.first_load import begun_again
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry
from headrace.control.snapshot import SnapshotState, initial
from headrace.control.verdicts import State, Verdict, first_loaded, record
from headrace.model.errors import SourceError
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

NAME = "again"
SETTINGS = SourceSettings(heartbeat_ms=300)
ADDED = "add the source again"


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        yield database


def begun(context: Context, database: Database) -> SourceEntry:
    """Add the source; return it when its snapshot has ended and nobody has noted that yet."""
    source.add(context, NAME, database.dsn, settings=SETTINGS, wait=False)
    entry = Registry(context.registry).source(NAME)
    kafka, capture = Kafka(context.kafka_bootstrap), capture_of(context, entry)
    until(lambda: initial(kafka, capture).state is SnapshotState.COMPLETED)
    return entry


def test_what_was_seen_of_a_removed_source_does_not_befall_its_namesake(
    context: Context, database: Database
) -> None:
    registry, kafka = Registry(context.registry), Kafka(context.kafka_bootstrap)
    source.add(context, NAME, database.dsn, settings=SETTINGS)
    old = registry.source(NAME)
    source.remove(context, NAME)
    entry = begun(context, database)
    try:
        # What a look does that began before the removal and ends now.
        assert begun_again(registry, kafka, capture_of(context, old), old) == ""
        registry.gap(old, "the old one has a gap")
        record(registry, old, [old.tables[0].topic], "TABLE_GONE", Verdict(State.RESYNC_REQUIRED, "gone"))
        first_loaded(registry, old, ())
        assert registry.source(NAME).loaded_ms is None
        streaming.wait_streaming(context, NAME, again=ADDED)
        assert registry.source(NAME).created_ms == entry.created_ms
        until(lambda: lag.measure(context).sources[0].state is State.STREAMING)
    finally:
        source.remove(context, NAME)


def test_a_connector_that_runs_and_tells_nothing_new_ends_the_wait(
    context: Context, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = begun(context, database)
    try:
        # As if its last word had never come.
        Registry(context.registry).heard(entry, 1 << 40)
        monkeypatch.setattr(streaming, "_STALLS_S", 2.0)
        with pytest.raises(SourceError) as caught:
            streaming.wait_streaming(context, NAME, again=ADDED)
        assert caught.value.code == "CONNECTOR_STALLED"
        assert ADDED in caught.value.hint
    finally:
        source.remove(context, NAME)


@pytest.mark.deep
def test_sources_come_and_go_beside_each_other(context: Context, stack: RunningStack) -> None:
    """Connect answers some requests with an error of its own while a connector beside is made or removed."""

    def come_and_go(name: str) -> str:
        with fresh_database(stack.endpoints.postgres_dsn, name) as database:
            database.run("CREATE TABLE t (id int PRIMARY KEY)")
            for _ in range(3):
                source.add(context, name, database.dsn, settings=SETTINGS)
                source.remove(context, name)
        return name

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(come_and_go, ("beside_a", "beside_b"))) == {"beside_a", "beside_b"}
