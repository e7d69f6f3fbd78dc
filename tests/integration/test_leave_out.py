"""Columns that are left out get nowhere: not into Kafka, and not into a store."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from redis import Redis
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from headrace.model.errors import SourceError, UsageError
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

SENDER = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'headrace_discreet'"
CANARY = "canary-4711"


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "discreet") as database:
        database.run(
            'CREATE TABLE users (id int PRIMARY KEY, name text, secret text, "a,b" text)',
            "ALTER TABLE users REPLICA IDENTITY FULL",
            f"INSERT INTO users SELECT i, 'n' || i, '{CANARY}', '{CANARY}' FROM generate_series(1, 20) i",
            "CREATE TABLE plain (id int PRIMARY KEY, secret text)",
            "INSERT INTO plain VALUES (1, 'open')",
        )
        yield database
        registry = Registry(context.registry)
        for entry in registry.sinks():
            if entry.source == "discreet":
                sink.remove(context, entry.name, purge=True)
        if "discreet" in [entry.name for entry in registry.sources()]:
            source.remove(context, "discreet")


def test_a_column_that_is_left_out_gets_nowhere(
    database: Database, context: Context, stack: RunningStack
) -> None:
    """Snapshot, stream, a resnapshot and a column that is followed: each brings rows by a way of its own."""

    def cached() -> dict[str, str]:
        with Redis.from_url(stack.endpoints.redis_url, decode_responses=True) as redis:
            keys = sorted(
                key for table in ("users", "plain") for key in redis.scan_iter(f"discreet:{table}:*")
            )
            return dict(zip(keys, map(str, redis.mget(keys)), strict=True))

    home = str(context.registry.parent)
    left = (("public", "users", "secret"), ("public", "users", "a,b"))
    source.add(context, "discreet", database.dsn, settings=SourceSettings(leave_out=left, heartbeat_ms=300))
    kept = {"url": stack.endpoints.redis_url, "format": "json"}
    sink.add(context, "discreetcache", "redis", settings=kept, source="discreet")
    database.run(
        f"INSERT INTO users VALUES (21, 'later', '{CANARY}', '{CANARY}')",
        f"UPDATE users SET secret = '{CANARY}-new', name = 'changed' WHERE id = 1",
        f"UPDATE users SET secret = '{CANARY}-only' WHERE id = 2",
        "UPDATE users SET id = 100 WHERE id = 3",
        "DELETE FROM users WHERE id = 4",
    )
    settle(context)
    runs.resnapshot(context, "discreet")
    database.run("ALTER TABLE users ADD COLUMN age int", "UPDATE users SET age = 7 WHERE id = 1")
    until(
        lambda: '"age":7' in cached()["discreet:users:1"].replace(" ", ""), why=lambda: lag.measure(context)
    )
    settle(context)
    rows = cached()
    assert len(rows) == 21
    assert json.loads(rows["discreet:users:1"])["name"] == "changed"
    assert "secret" in json.loads(rows["discreet:plain:1"]), "another table's column of that name stays"
    assert CANARY not in str(rows)
    told = Kafka(context.kafka_bootstrap).committed("discreet.public.users")[0]
    assert len(told) > 40
    assert CANARY not in str(told)
    shown = CliRunner().invoke(app, ["source", "show", "discreet", "--json", "--home", home])
    assert json.loads(shown.output)["tables"]["public.users"]["left_out"] == ["secret", "a,b"]


@pytest.mark.deep
def test_a_column_that_is_left_out_stays_so_under_another_name(
    database: Database, context: Context, stack: RunningStack
) -> None:
    """The watcher has to see the new name, and the connector to start anew."""
    left = (("public", "users", "secret"), ("public", "users", "a,b"))
    source.add(context, "discreet", database.dsn, settings=SourceSettings(leave_out=left, heartbeat_ms=300))
    kept = {"url": stack.endpoints.redis_url, "format": "json"}
    sink.add(context, "discreetcache", "redis", settings=kept, source="discreet")
    settle(context)
    former = database.value(SENDER)
    database.run("ALTER TABLE users RENAME secret TO hidden")
    with Connect(context.connect_url) as connect:
        until(
            lambda: "hidden" in connect.config("headrace_discreet")["column.exclude.list"],
            why=lambda: lag.measure(context),
        )
    until(lambda: database.value(SENDER) not in (None, former))  # until then it is told under the new name
    database.run(f"INSERT INTO users VALUES (21, 'later', '{CANARY}', '{CANARY}')")
    settle(context)
    runs.resnapshot(context, "discreet")
    assert CANARY not in str(Kafka(context.kafka_bootstrap).committed("discreet.public.users")[0])
    with Redis.from_url(stack.endpoints.redis_url, decode_responses=True) as redis:
        assert CANARY not in str(redis.get("discreet:users:21"))
    known = [table.schema for table in Registry(context.registry).source("discreet").tables]
    assert "hidden" not in str([schema.as_dict() for schema in known])


def test_what_cannot_be_left_out_is_refused_by_name(database: Database, context: Context) -> None:
    def refused(*columns: tuple[str, str, str]) -> str:
        with pytest.raises((SourceError, UsageError)) as caught:
            source.add(context, "discreet", database.dsn, settings=SourceSettings(leave_out=columns))
        return caught.value.code

    assert refused(("public", "users", "id")) == "SOURCE_COLUMN_KEY"
    assert refused(("public", "users", "Secret")) == "SOURCE_COLUMN_UNKNOWN"
    assert refused(("public", "nobody", "secret")) == "SOURCE_COLUMN_UNMEANT"
