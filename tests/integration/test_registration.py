"""Registering on databases and stores of others: what is waited for, refused and left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import httpx
import psycopg
import pytest
from redis import Redis

from headrace.config.source import SourceSettings
from headrace.control import lag, sink, sink_check, source, source_check
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.model.errors import HeadraceError, SinkError
from headrace.model.finding import Severity
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack
from tests.support.waiting import ended, settle, until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "registered"
BEAT = SourceSettings(heartbeat_ms=300)


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as made:
        yield made
        for entry in Registry(context.registry).sinks():
            sink.remove(context, entry.name, purge=True)
        with suppress(HeadraceError):
            source.remove(context, NAME)


def test_an_open_transaction_of_another_database_is_waited_for_by_name(
    context: Context, database: Database, stack: RunningStack
) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    said: list[str] = []
    with fresh_database(stack.endpoints.postgres_dsn, "held_open") as other:
        with psycopg.connect(other.dsn) as holder:
            holder.execute("CREATE TABLE held_open (i int)")
            who = f"process {holder.info.backend_pid} of postgres in database held_open"
            adding = threading.Thread(
                target=source.add,
                args=(context, NAME, database.dsn),
                kwargs={"settings": BEAT, "say": said.append},
            )
            adding.start()
            until(
                lambda: any(who in text and "pg_terminate_backend" in text for text in said), why=lambda: said
            )
            (told,) = [one for one in lag.measure(context).sources if one.source == NAME]
            assert told.state is lag.State.SETUP
            assert who in told.reason
            assert told.remedy == f"SELECT pg_terminate_backend({holder.info.backend_pid});"
        ended(adding)
    until(lambda: lag.measure(context).sources[0].state is lag.State.STREAMING)


def test_limits_of_time_that_others_have_set_do_not_end_a_load(context: Context, database: Database) -> None:
    """Each of them is far below what reading takes; the load comes to its end at its first try."""
    rows = 100_000
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, name text)",
        f"INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, {rows}) i",
        *(
            f"ALTER DATABASE {NAME} SET {name} = '{value}'"
            for name, value in {
                "transaction_timeout": "500ms",
                "statement_timeout": "300ms",
                "idle_in_transaction_session_timeout": "100ms",
                "idle_session_timeout": "2s",
                "lock_timeout": "1ms",
                "default_transaction_read_only": "on",
            }.items()
        ),
    )
    said: list[str] = []
    source.add(context, NAME, database.dsn, settings=BEAT, say=said.append)
    assert not [text for text in said if "time: the connector was interrupted" in text]
    assert Kafka(context.kafka_bootstrap).ends([f"{NAME}.public.t"])[f"{NAME}.public.t", 0][1] >= rows
    until(lambda: lag.measure(context).sources[0].state is lag.State.STREAMING)


def test_messages_that_other_programs_write_to_the_log_are_not_taken_in(
    context: Context, database: Database, stack: RunningStack
) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    source.add(context, NAME, database.dsn, settings=BEAT)
    sink.add(context, f"{NAME}cache", "redis", settings={"url": stack.endpoints.redis_url}, source=NAME)
    database.run(
        "SELECT pg_logical_emit_message(true, 'other', repeat('x', 3000000))",
        "SELECT pg_logical_emit_message(false, 'other', 'y')",
        "INSERT INTO t VALUES (1)",
    )
    settle(context)
    with Redis.from_url(stack.endpoints.redis_url) as redis:
        assert redis.exists(f"{NAME}:t:1")
    assert f"{NAME}.message" not in Kafka(context.kafka_bootstrap).names()


@pytest.mark.deep
def test_a_sink_that_is_refused_half_way_leaves_nothing_and_works_afterwards(
    context: Context, database: Database, stack: RunningStack
) -> None:
    url = stack.endpoints.elasticsearch_url
    database.run(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("first", "second", "third")))
    source.add(context, NAME, database.dsn, settings=BEAT)

    def ours() -> set[str]:
        found = httpx.get(f"{url}/{NAME}-*?expand_wildcards=all", timeout=WAIT_S).json()
        return {index for index in found if "headrace_" not in index}

    taken = f"{NAME}-public-second"
    httpx.put(f"{url}/{taken}", timeout=WAIT_S).raise_for_status()
    try:
        with pytest.raises(SinkError) as caught:
            sink.add(context, f"{NAME}search", "elasticsearch", settings={"url": url}, source=NAME)
        assert caught.value.code == "ES_NAME_TAKEN"
        assert ours() == {taken}
        assert f"{NAME}search" not in [entry.name for entry in Registry(context.registry).sinks()]
    finally:
        httpx.delete(f"{url}/{taken}", timeout=WAIT_S)
    sink.add(context, f"{NAME}search", "elasticsearch", settings={"url": url}, source=NAME)
    assert len(ours()) == 6


def test_a_connector_that_reads_another_database_is_refused_before_it_is_believed(
    context: Context, database: Database, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a driver does that understands a name otherwise; here the properties say it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    create = Connect.create
    with fresh_database(stack.endpoints.postgres_dsn, "not_meant") as other:
        other.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (2)")
        other.run("CREATE SCHEMA headrace", "CREATE PUBLICATION headrace_registered FOR TABLE t")
        signal = "id varchar(42) PRIMARY KEY, type varchar(32), data text"
        other.run(
            f"CREATE TABLE headrace.{NAME}_signal ({signal})",
            f"CREATE TABLE headrace.{NAME}_heartbeat (id smallint PRIMARY KEY, at timestamptz NOT NULL)",
        )

        def elsewhere(self: Connect, name: str, config: dict[str, str]) -> None:
            create(self, name, {**config, "database.dbname": "not_meant"})

        monkeypatch.setattr(Connect, "create", elsewhere)
        with pytest.raises(HeadraceError) as caught:
            source.add(context, NAME, database.dsn, settings=BEAT)
        assert caught.value.code == "SOURCE_ELSEWHERE"
        assert "not_meant" in caught.value.message
        assert NAME not in [entry.name for entry in Registry(context.registry).sources()]
        slots = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'headrace_registered'"
        assert database.run(slots) == [], "it has read something there"
        # A slot of another database may be that of another installation: it is told, and not dropped.
        _, _, statements = caught.value.hint.partition("run this there: ")
        other.run(*statements.removesuffix(";").split("; "))
        assert database.run(slots) == []


MISREADING = "-c IntervalStyle=sql_standard -c row_security=off"
"""Options of a worker's driver under which intervals arrive as others."""


def test_a_worker_that_tells_values_as_others_is_refused_and_told_ever_after(
    context: Context, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    create = Connect.create

    def misreading(self: Connect, name: str, config: dict[str, str]) -> None:
        create(self, name, {**config, "driver.options": MISREADING})

    with monkeypatch.context() as patched:
        patched.setattr(Connect, "create", misreading)
        with pytest.raises(HeadraceError) as caught:
            source.add(context, NAME, database.dsn, settings=BEAT)
    assert caught.value.code == "SOURCE_MISREAD"
    assert "interval" in caught.value.message
    source.add(context, NAME, database.dsn, settings=BEAT)
    until(lambda: lag.measure(context).sources[0].state is lag.State.STREAMING)
    with Connect(context.connect_url) as connect:
        known = connect.config(f"headrace_{NAME}")
        connect.replace(f"headrace_{NAME}", {**known, "driver.options": MISREADING})
    until(lambda: lag.measure(context).sources[0].state is lag.State.RESYNC_REQUIRED)
    (told,) = lag.measure(context).sources
    assert "interval" in told.reason
    assert told.remedy == f"headrace recover {NAME}"


def test_what_a_sink_would_be_refused_for_is_said_by_its_check(
    context: Context, database: Database, stack: RunningStack
) -> None:
    """And a table that is unfit is left out by name, and refuses no other."""
    database.run(
        "CREATE TABLE fit (id int PRIMARY KEY)",
        "CREATE TABLE keyless (id int)",
        'CREATE TABLE "a b" (id int PRIMARY KEY)',
        'CREATE TABLE "a,b" (id int PRIMARY KEY)',
    )
    checked = {one.code: one for one in source_check.check(database.dsn) if one.severity is Severity.ERROR}
    assert set(checked) == {"SOURCE_NO_PRIMARY_KEY", "SOURCE_TOPIC_SHARED"}
    with pytest.raises(HeadraceError) as caught:
        source.add(context, NAME, database.dsn, settings=BEAT)
    assert "--skip-unfit" in caught.value.hint
    said: list[str] = []
    entry = source.add(context, NAME, database.dsn, settings=BEAT, skip_unfit=True, say=said.append)
    assert {str(table.schema.table) for table in entry.tables} == {"public.fit", "public.a b"}
    assert [text for text in said if "public.keyless" in text and "no primary key" in text]
    assert not lag.measure(context).sources[0].notes, "who was told of it is not told again"

    url = stack.endpoints.redis_url

    def found(name: str, **settings: str) -> set[str]:
        told = sink_check.check(context, name, "redis", settings={"url": url, **settings}, source=NAME)
        return {one.code for one in told if one.severity is Severity.ERROR}

    assert found("one") == set()
    with Redis.from_url(url) as redis:
        assert not list(redis.scan_iter(f"{NAME}:*")), "a check changes nothing"
    sink.add(context, "one", "redis", settings={"url": url}, source=NAME)
    assert found("two") == {"SINK_TARGET_TAKEN"}
    assert found("two", key_prefix="other:") == set()
    with pytest.raises(HeadraceError) as taken:
        found("one")
    assert taken.value.code == "SINK_EXISTS"
