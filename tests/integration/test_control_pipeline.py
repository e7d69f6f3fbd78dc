"""Sinks on real servers: added while a source streams, followed, paused, swept, removed with all they had."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.kafka import KafkaAddress
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from headrace.model.errors import SinkError, SourceError, UsageError
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import elapse, settle, stays, until

pytestmark = pytest.mark.stack

ITEMS = TableId("public", "items")


@pytest.fixture(scope="module")
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "control_pipeline") as database:
        database.run(
            "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL)",
            "CREATE TABLE others (id int PRIMARY KEY)",
            "INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, 400) i",
            "INSERT INTO others SELECT generate_series(1, 10)",
        )
        source.add(context, "yard", database.dsn, settings=SourceSettings(heartbeat_ms=300), wait=False)
        yield database
        source.remove(context, "yard")


@pytest.fixture
def cache(context: Context, database: Database, stack: RunningStack) -> Iterator[redis.Redis]:
    settings = {"url": stack.endpoints.redis_url, "format": "json"}
    sink.add(context, "yardcache", "redis", settings=settings, source="yard")
    with redis.Redis.from_url(stack.endpoints.redis_url, decode_responses=True) as client:
        yield client
    if "yardcache" in (entry.name for entry in Registry(context.registry).sinks()):
        sink.remove(context, "yardcache", purge=True)


def in_sync(context: Context) -> bool:
    return lag.measure(context).in_sync


def ids(cache: redis.Redis) -> set[int]:
    return {int(key.rpartition(":")[2]) for key in cache.scan_iter("yard:items:*", count=1000)}


def rows(database: Database) -> set[int]:
    return {row[0] for row in database.run("SELECT id FROM items")}


@pytest.mark.deep
def test_a_sink_added_while_the_snapshot_runs_ends_equal_and_says_so(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    """Its time is that of the source, the sink and the engine, which this file shares."""
    settle(context)
    assert ids(cache) == rows(database)
    database.run("UPDATE items SET name = 'changed' WHERE id = 5", "DELETE FROM items WHERE id = 6")
    until(lambda: json.loads(cache.get("yard:items:5") or "{}").get("name") == "changed")
    until(lambda: 6 not in ids(cache))
    until(lambda: in_sync(context))
    report = lag.measure(context)
    (summary,) = report.sinks
    assert summary.latency_ms["count"] >= 1
    assert {table.table for table in report.tables} == {"public.items", "public.others"}


def test_an_idle_table_stays_fresh(context: Context, cache: redis.Redis) -> None:
    until(lambda: in_sync(context))
    before = {table.table: table.applied for table in lag.measure(context).tables}
    began = time.monotonic()
    elapse(3)

    def fresh() -> bool:
        since = time.monotonic() - began  # older than this it would be, did nothing prove it anew
        told = lag.measure(context).tables
        return all(t.freshness_seconds is not None and t.freshness_seconds < since for t in told)

    until(fresh)
    assert {table.table: table.applied for table in lag.measure(context).tables} == before


def test_a_paused_sink_falls_behind_and_catches_up(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    until(lambda: in_sync(context))
    sink.pause(context, "yardcache")
    until(lambda: lag.measure(context).sinks[0].state is lag.State.PAUSED)
    database.run("INSERT INTO items SELECT i, 'late' FROM generate_series(1001, 1050) i")

    def behind() -> int:
        return sum(table.lag_records or 0 for table in lag.measure(context).tables)

    until(lambda: behind() >= 50)
    elapse(1)
    stale = next(table for table in lag.measure(context).tables if table.table == "public.items")
    assert stale.freshness_seconds is not None
    assert stale.freshness_seconds > 1
    assert not in_sync(context)
    sink.resume(context, "yardcache")
    settle(context)
    assert ids(cache) == rows(database)


def test_a_resnapshot_removes_what_went_unseen_and_nothing_else(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    until(lambda: in_sync(context))
    database.run(
        "ALTER PUBLICATION headrace_yard DROP TABLE items",
        "DELETE FROM items WHERE id BETWEEN 100 AND 109",
        "UPDATE items SET name = 'unseen' WHERE id = 110",
        "INSERT INTO items VALUES (5000, 'unseen')",
        "ALTER PUBLICATION headrace_yard ADD TABLE items",
    )
    planned = runs.plan(context, "yard", tables=[ITEMS])
    assert planned.sinks == ("yardcache",)
    assert ids(cache) != rows(database)
    (swept,) = runs.resnapshot(context, "yard", tables=[ITEMS])
    assert swept.removed == 10
    assert ids(cache) == rows(database)
    assert json.loads(cache.get("yard:items:110") or "{}")["name"] == "unseen"
    until(lambda: in_sync(context))


@pytest.mark.parametrize("aborted", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_sweep_that_would_empty_the_sink_asks_first_and_goes_on_when_allowed(
    context: Context, database: Database, cache: redis.Redis, aborted: bool
) -> None:
    database.run("INSERT INTO items SELECT i, 'many' FROM generate_series(10000, 12000) i")
    until(lambda: in_sync(context) and 12000 in ids(cache))
    database.run(
        "ALTER PUBLICATION headrace_yard DROP TABLE items",
        "DELETE FROM items WHERE id >= 10000",
        "ALTER PUBLICATION headrace_yard ADD TABLE items",
    )
    with pytest.raises(SinkError) as caught:
        runs.resnapshot(context, "yard", tables=[ITEMS])
    assert caught.value.code == "RESNAPSHOT_SWEEP_LARGE"
    assert 12000 in ids(cache)
    found = next(table for table in lag.measure(context).tables if table.table == "public.items")
    assert (found.state, found.remedy) == (lag.State.DEGRADED, caught.value.hint)
    if aborted:  # then another run finds the rows again
        run = caught.value.hint.split()[3]
        carry_out(f"headrace resnapshot abort {run}", context.registry.parent, database.run)
        found = next(table for table in lag.measure(context).tables if table.table == "public.items")
        assert found.remedy == "headrace resnapshot yard public.items --sweep-many"
    carry_out(found.remedy, context.registry.parent, database.run)
    assert ids(cache) == rows(database)


@pytest.mark.deep
def test_a_publication_that_was_changed_and_put_back_is_mended_as_it_is_told(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    until(lambda: in_sync(context))
    database.run(
        "ALTER PUBLICATION headrace_yard SET (publish = 'insert, update, truncate')",
        "DELETE FROM items WHERE id = 7",
        "ALTER PUBLICATION headrace_yard SET (publish = 'insert, update, delete, truncate')",
    )

    def told() -> set[tuple[lag.State, str]]:
        return {(table.state, table.remedy) for table in lag.measure(context).tables}

    until(lambda: told() == {(lag.State.RESYNC_REQUIRED, "headrace source refresh yard")})
    command = ["source", "refresh", "yard", "--home", str(context.registry.parent)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    until(lambda: in_sync(context))
    assert ids(cache) == rows(database)


def test_a_resnapshot_needs_a_connector_that_streams(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    source.pause(context, "yard")
    try:
        until(lambda: lag.measure(context).sources[0].state is lag.State.PAUSED)
        with pytest.raises(SourceError) as caught:
            runs.resnapshot(context, "yard")
        assert caught.value.code == "SOURCE_NOT_STREAMING"
        told = lag.measure(context).sources[0].remedy
        assert caught.value.hint == told == "headrace source resume yard"
    finally:
        carry_out("headrace source resume yard", context.registry.parent, database.run)
    until(lambda: in_sync(context))


@pytest.mark.deep
def test_a_resnapshot_waits_for_a_connector_that_is_being_started_anew(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    until(lambda: in_sync(context))
    with Connect(context.connect_url) as connect, ThreadPoolExecutor(1) as pool:
        connect.end_task("headrace_yard")  # as whoever follows columns does, for a moment
        run = pool.submit(runs.resnapshot, context, "yard")
        elapse(1)
        assert not run.done()
        connect.resume("headrace_yard")
        assert {(swept.table, swept.removed) for swept in run.result(WAIT_S)} == {
            ("public.items", 0),
            ("public.others", 0),
        }


def test_two_sinks_do_not_share_a_target(context: Context, cache: redis.Redis, stack: RunningStack) -> None:
    with pytest.raises(UsageError) as caught:
        sink.add(context, "twin", "redis", settings={"url": stack.endpoints.redis_url}, source="yard")
    assert caught.value.code == "SINK_TARGET_TAKEN"
    assert [entry.name for entry in Registry(context.registry).sinks()] == ["yardcache"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"kind": "reddis", "settings": {}}, "SINK_KIND_UNKNOWN"),
        ({"kind": "redis", "settings": {"url": "redis://h", "colour": "red"}}, "SINK_SETTINGS_INVALID"),
        (
            {"kind": "redis", "settings": {"url": "redis://h"}, "tables": [TableId("public", "no")]},
            "TABLE_NOT_CAPTURED",
        ),
        ({"kind": "redis", "settings": {"url": "redis://h"}, "source": "nowhere"}, "SOURCE_UNKNOWN"),
    ],
)
def test_a_sink_that_cannot_be_is_refused(
    context: Context, database: Database, arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(UsageError) as caught:
        sink.add(context, "wrong", **{"source": "yard", **arguments})
    assert caught.value.code == code


def test_a_source_with_sinks_is_not_removed(context: Context, cache: redis.Redis) -> None:
    with pytest.raises(UsageError) as caught:
        source.remove(context, "yard")
    assert (caught.value.code, caught.value.hint) == ("SOURCE_IN_USE", "headrace sink remove yardcache")


def test_the_command_line_shows_where_rows_are_and_hides_the_password(
    context: Context, cache: redis.Redis, stack: RunningStack
) -> None:
    home = ["--home", str(stack.home.root)]
    result = CliRunner().invoke(app, ["sink", "show", "yardcache", "--json", *home])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["tables"]["public.items"]["target"]["key_template"] == "yard:items:{id}"
    assert shown["tables"]["public.items"]["target"]["format"] == "json"
    listed = CliRunner().invoke(app, ["lag", "--json", *home])
    assert {table["sink"] for table in json.loads(listed.stdout)["tables"]} == {"yardcache"}
    assert CliRunner().invoke(app, ["lag", *home]).exit_code == 0


def test_a_sink_that_cannot_load_from_the_beginning_says_so_until_a_resnapshot(
    context: Context, database: Database, cache: redis.Redis, stack: RunningStack
) -> None:
    until(lambda: in_sync(context))
    admin = AdminClient({**KafkaAddress.parse(context.kafka_bootstrap).librdkafka()})
    (_, end), *_ = Kafka(context.kafka_bootstrap).ends(["yard.public.items"]).values()
    for future in admin.delete_records([TopicPartition("yard.public.items", 0, end - 1)]).values():
        future.result(WAIT_S)
    settings = {"url": stack.endpoints.redis_url, "format": "hash", "key_prefix": "late:"}
    sink.add(context, "latecomer", "redis", settings=settings, source="yard", tables=[ITEMS])
    try:

        def state() -> lag.State:
            return next(found.state for found in lag.measure(context).sinks if found.sink == "latecomer")

        stays(lambda: state() is lag.State.RESYNC_REQUIRED, 3, why=state)
        (told,) = {t.remedy for t in lag.measure(context).tables if t.sink == "latecomer"}
        carry_out(told, context.registry.parent, database.run)
        settle(context)
        found = {int(key.rpartition(":")[2]) for key in cache.scan_iter("late:items:*", count=1000)}
        assert found == rows(database)
    finally:
        sink.remove(context, "latecomer", purge=True)


def test_removed_with_purge_nothing_is_left_and_added_again_it_loads_everything(
    context: Context, database: Database, cache: redis.Redis, stack: RunningStack
) -> None:
    until(lambda: in_sync(context))
    sink.remove(context, "yardcache", purge=True)
    assert list(cache.scan_iter("yard*")) == []
    for directory in (context.pipelines, context.progress, context.checkpoints):
        assert not list(directory.glob("*yardcache*"))
    sink.add(context, "yardcache", "redis", settings={"url": stack.endpoints.redis_url}, source="yard")
    settle(context)
    assert ids(cache) == rows(database)


def test_a_source_added_anew_leaves_no_row_of_its_earlier_life(
    context: Context, database: Database, cache: redis.Redis, stack: RunningStack
) -> None:
    until(lambda: in_sync(context))
    with pytest.raises(UsageError) as refused:
        sink.add(context, "yardcache", "redis", settings={"url": stack.endpoints.redis_url})
    assert refused.value.code == "SINK_EXISTS"
    assert "yardcache" in carry_out(refused.value.hint, context.registry.parent, database.run)
    sink.remove(context, "yardcache")
    source.remove(context, "yard")
    database.run("DELETE FROM items WHERE id = 1")
    source.add(context, "yard", database.dsn, settings=SourceSettings(heartbeat_ms=300))
    sink.add(context, "yardcache", "redis", settings={"url": stack.endpoints.redis_url})
    settle(context)
    assert ids(cache) == rows(database)
