"""Other clients take every connection that a database has for replication: it is told, and ends by itself."""

from __future__ import annotations

import psycopg
import pytest

from headrace.config.source import SourceSettings
from headrace.control import lag, source
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(300)]

NAME = "senders"


def taken(database: Database) -> psycopg.Connection[tuple[object, ...]]:
    """Take the database's only sender from the connector; return the connection that has it."""
    held: list[psycopg.Connection[tuple[object, ...]]] = []

    def ours() -> bool:
        database.run("SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE active")
        try:
            held.append(psycopg.connect(database.dsn, replication="database", autocommit=True))
        except psycopg.OperationalError:
            return False
        return True

    until(ours)
    return held[0]


def state_of(context: Context) -> lag.State:
    return next(found.state for found in lag.measure(context).sources if found.source == NAME)


def test_no_sender_is_left_for_a_while(context: Context) -> None:
    with postgres_server(18, "max_wal_senders=1") as dsn, fresh_database(dsn, NAME) as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        entry = source.add(context, NAME, database.dsn, settings=SourceSettings(heartbeat_ms=300))
        try:
            with taken(database):
                database.run("INSERT INTO t VALUES (1)")
                until(lambda: state_of(context) in (lag.State.DEGRADED, lag.State.FAILED))
            until(lambda: state_of(context) is lag.State.STREAMING)
            told, _ = Kafka(context.kafka_bootstrap).committed(entry.tables[0].topic)
            assert [value["after"] for value in told] == [{"id": 1}]
        finally:
            source.remove(context, NAME)
