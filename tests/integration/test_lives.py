"""Lives of a source told apart: the registry lost within the hour, a store restored from an earlier life."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.opened import open_sink
from headrace.control.registry import Registry
from headrace.model.claim import Claim
from headrace.model.errors import UsageError
from tests.support.database import Database, fresh_database
from tests.support.entries import lose_registry
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("honest"),
]

BEAT = SourceSettings(heartbeat_ms=300)


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "lives") as database:
        database.run(
            "CREATE TABLE kinds (id int PRIMARY KEY, name text)",
            "INSERT INTO kinds SELECT i, 'n' || i FROM generate_series(1, 20) i",
        )
        yield database


@pytest.fixture
def begin(context: Context, database: Database, stack: RunningStack) -> Iterator[Callable[[], None]]:
    """Yield what adds the source and its sink, as often as it is called; both are removed at the end."""

    def add() -> None:
        source.add(context, "life", database.dsn, settings=BEAT)
        sink.add(context, "lifecache", "redis", settings={"url": stack.endpoints.redis_url}, source="life")

    yield add
    sink.remove(context, "lifecache", purge=True)
    source.remove(context, "life")


@pytest.fixture
def redis(stack: RunningStack) -> Iterator[Any]:
    with Redis.from_url(stack.endpoints.redis_url) as client:
        yield client


def names(redis: Any) -> dict[int, str]:
    keys = list(redis.scan_iter("life:kinds:*"))
    documents = (json.loads(text) for text in redis.mget(keys) if text is not None)
    return {document["id"]: document["name"] for document in documents}


def wanted(database: Database) -> dict[int, str]:
    return dict(database.run("SELECT id, name FROM kinds"))


def test_a_registry_that_was_lost_hands_out_no_epoch_twice(
    context: Context, database: Database, begin: Callable[[], None], redis: Any
) -> None:
    begin()
    epoch = Registry(context.registry).source("life").tables[0].epoch
    for number in range(300):
        database.run(f"UPDATE kinds SET name = 'first life {number}' WHERE id <= 3")
    settle(context)
    lose_registry(context.registry)

    seen = lag.measure(context)
    assert not seen.in_sync
    assert [(found.sink, found.state.value) for found in seen.sinks] == [("lifecache", "failed")]
    assert "the registry was lost" in seen.sinks[0].reason
    database.run("DELETE FROM kinds WHERE id = 20")
    begin()
    assert Registry(context.registry).source("life").tables[0].epoch > epoch
    database.run("UPDATE kinds SET name = 'second life'")
    settle(context)
    assert names(redis) == wanted(database)


def test_a_registry_that_was_put_back_is_told_and_mended_as_it_is_told(
    context: Context, database: Database, begin: Callable[[], None], redis: Any, tmp_path: Path
) -> None:
    """An older copy knows the source, and neither its sink nor the epoch of now."""
    source.add(context, "life", database.dsn, settings=BEAT)
    kept = tmp_path / "registry.db"
    with closing(sqlite3.connect(context.registry)) as now, closing(sqlite3.connect(kept)) as copy:
        now.backup(copy)
    source.remove(context, "life")
    begin()
    settle(context)
    with closing(sqlite3.connect(context.registry)) as now, closing(sqlite3.connect(kept)) as copy:
        copy.backup(now)

    def remedies() -> list[str]:
        seen = lag.measure(context)
        told = [*(one.remedy for one in seen.sources), *(one.remedy for one in seen.sinks)]
        return list(dict.fromkeys(remedy for remedy in told if remedy))

    assert not lag.measure(context).in_sync
    database.run("DELETE FROM kinds WHERE id = 20", "UPDATE kinds SET name = 'later' WHERE id = 1")
    for _ in range(4):
        assert not lag.measure(context).in_sync or names(redis) == wanted(database)
        for remedy in remedies():
            for command in remedy.split(" && "):
                carry_out(command, context.registry.parent, database.run)
        if lag.measure(context).in_sync:
            break
    settle(context)
    assert names(redis) == wanted(database)


def test_a_store_restored_from_an_earlier_life_is_replayed_and_cleared(
    context: Context, database: Database, begin: Callable[[], None], redis: Any
) -> None:
    begin()
    for number in range(50):
        database.run(f"UPDATE kinds SET name = 'first life {number}' WHERE id <= 3")
    settle(context)
    kept = {key: redis.dump(key) for key in redis.scan_iter("life:*")}
    sink.remove(context, "lifecache")
    source.remove(context, "life")
    database.run("DELETE FROM kinds WHERE id > 15")
    begin()
    settle(context)
    assert names(redis) == wanted(database)

    redis.unlink(*redis.scan_iter("life:*"))
    for key, value in kept.items():
        redis.restore(key, 0, value)
    assert len(names(redis)) == 20
    until(lambda: names(redis) == wanted(database))
    settle(context)
    assert names(redis) == wanted(database)


def test_a_target_is_one_whatever_its_address_is_spelled_and_goes_with_its_owner_only(
    context: Context, begin: Callable[[], None], redis: Any, stack: RunningStack, database: Database
) -> None:
    begin()
    settle(context)
    url = stack.endpoints.redis_url.replace("127.0.0.1", "localhost")
    assert url != stack.endpoints.redis_url
    for spelled in (url, url.removesuffix("/0")):
        with pytest.raises(UsageError) as caught:
            sink.add(context, "twin", "redis", settings={"url": spelled}, source="life")
        assert caught.value.code == "SINK_TARGET_TAKEN"
    assert lag.measure(context).in_sync

    # Another installation takes the target over: ours is fenced, and its --purge leaves the target alone.
    with closing(open_sink(Registry(context.registry).sink("lifecache"))) as store:
        schemas = [table.schema for table in Registry(context.registry).source("life").tables]
        store.claim(schemas, Claim.new("theirs", "elsewhere", engine=True), store.claims(schemas))
    until(lambda: lag.measure(context).sinks[0].state.value == "failed")
    said: list[str] = []
    sink.remove(context, "lifecache", purge=True, say=said.append)
    assert any("serves it now" in line for line in said)
    assert names(redis) == wanted(database)
    sink.add(context, "lifecache", "redis", settings={"url": url}, source="life", take_over=True)
