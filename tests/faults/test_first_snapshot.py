"""Connect or Postgres is killed while the first snapshot of a source is read: it begins again, and is one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.looks import BEAT
from headrace.control.registry import Registry
from headrace.control.runner import ensure_engine
from headrace.observe import pidfile
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack
from tests.support.waiting import elapse, settle, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]

ROWS = 100_000


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "first") as database:
        database.run(
            "CREATE TABLE items (id int PRIMARY KEY, name text)",
            f"INSERT INTO items SELECT i, repeat('n', 100) || i FROM generate_series(1, {ROWS}) i",
        )
        yield database


@pytest.mark.parametrize("name", ["connect", "postgres"])
def test_a_server_is_killed_in_the_first_snapshot(
    context: Context, database: Database, stack: RunningStack, name: str
) -> None:
    source.add(context, "first", database.dsn, settings=SourceSettings(heartbeat_ms=300), wait=False)
    assert not ensure_engine(context), "nobody looks whether the application waits"
    kafka = Kafka(context.kafka_bootstrap)

    def read() -> int:
        return sum(high for _, high in kafka.ends(["first.public.items"]).values())

    try:
        until(lambda: read() > 1_000)
        begun = read()
        pid = pidfile.alive(stack.home.pidfile(name))
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        elapse(1)
        stack.stack.up()
        assert begun < ROWS, "the snapshot was over before it could be broken"
        settings = {"url": stack.endpoints.redis_url}
        sink.add(context, "firstcache", "redis", settings=settings, source="first", wait=False)
        assert not lag.measure(context).in_sync
        database.run("DELETE FROM items WHERE id = 7", "UPDATE items SET name = 'x' WHERE id = 8")
        settle(context, 300)
        # Telling the query what the run behind the load has swept starts it anew for a moment.
        until(
            lambda: (
                [
                    (found.lag_records, found.state)
                    for found in lag.measure(context).tables
                    if found.sink == "firstcache"
                ]
                == [(0, lag.State.STREAMING)]
            )
        )
        (store,) = [e for e in lag.measure(context).sinks if e.sink == "firstcache"]
        assert store.state is lag.State.STREAMING
        shown = held(stack)
        assert shown[b"first:items:8"]["name"] == "x"
        assert len(shown) == ROWS - 1
        assert b"first:items:7" not in shown
    finally:
        stack.stack.up()
        for entry in Registry(context.registry).sinks("first"):
            sink.remove(context, entry.name, purge=True)
        source.remove(context, "first")


def test_a_first_snapshot_gives_way_to_a_statement_that_waits_for_its_locks(
    context: Context, database: Database, stack: RunningStack
) -> None:
    """A snapshot is one transaction, and keeps its locks upon tables that it has read long since.

    The worker hangs: whoever asks Connect waits for a minute.
    """
    database.run("CREATE TABLE early (id int PRIMARY KEY)", "INSERT INTO early VALUES (1), (2)")
    ensure_engine(context)
    until((context.run / BEAT).exists)
    source.add(context, "first", database.dsn, settings=SourceSettings(heartbeat_ms=300), wait=False)
    kafka = Kafka(context.kafka_bootstrap)
    worker = pidfile.alive(stack.home.pidfile("connect"))
    assert worker is not None
    try:
        until(lambda: sum(high for _, high in kafka.ends(["first.public.items"]).values()) > 1_000)
        os.kill(worker, signal.SIGSTOP)  # it takes as long as it takes
        try:
            assert database.value("SELECT count(*) FROM pg_locks WHERE relation = 'early'::regclass") > 0
            elapse(16)  # a look that asks Connect, too, has begun
            database.run("SET lock_timeout = '30s'", "TRUNCATE early")
        finally:
            os.kill(worker, signal.SIGCONT)
        journal = Registry(context.registry).journal
        told = "connector's reading broken off"
        until(lambda: told in [entry.event for entry in journal("source first")])
        settings = {"url": stack.endpoints.redis_url}
        sink.add(context, "firstcache", "redis", settings=settings, source="first", wait=False)
        settle(context, 300)
        with Redis.from_url(stack.endpoints.redis_url) as redis:
            assert list(redis.scan_iter("first:early:*")) == []
            assert sum(1 for _ in redis.scan_iter("first:items:*", count=5000)) == ROWS
    finally:
        for entry in Registry(context.registry).sinks("first"):
            sink.remove(context, entry.name, purge=True)
        source.remove(context, "first")


def held(stack: RunningStack) -> dict[bytes, dict[str, Any]]:
    """Return the rows that Redis shows."""
    with Redis.from_url(stack.endpoints.redis_url) as redis:
        keys = list(redis.scan_iter("first:items:*", count=5000))
        parts = (keys[at : at + 10_000] for at in range(0, len(keys), 10_000))
        return {
            key: json.loads(row) for part in parts for key, row in zip(part, redis.mget(part), strict=True)
        }
