"""Other clients keep a connector from its slot: they are told with what ends it, and it goes on by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

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


def taken(database: Database, take: Callable[[Any], object] = lambda _: None) -> Any:
    """Take what the connector has, again and again until it is had; return the connection that has it."""
    held: list[Any] = []

    def ours() -> bool:
        database.run("SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE active")
        try:
            connection: Any = psycopg.connect(database.dsn, replication="database", autocommit=True)
        except psycopg.OperationalError:
            return False
        held.append(connection)
        return take(connection) is not False

    until(ours)
    return held[-1]


def reads(connection: Any) -> bool:
    """Read from the connector's slot; return whether nobody else did."""
    order = (
        f"START_REPLICATION SLOT headrace_{NAME} LOGICAL 0/0 (proto_version '1', publication_names '{{}}')"
    )
    began = connection.pgconn.exec_(order.format(f"headrace_{NAME}").encode())
    if began.status != psycopg.pq.ExecStatus.COPY_BOTH:
        connection.close()
        return False
    return True


def told(context: Context) -> lag.SourceLag:
    return next(found for found in lag.measure(context).sources if found.source == NAME)


@pytest.mark.parametrize(
    ("senders", "take", "words"),
    [(1, lambda _: None, "max_wal_senders = 1"), (4, reads, "reads from it")],
)
def test_others_keep_it_from_its_slot_for_a_while(
    context: Context, senders: int, take: Callable[[Any], object], words: str
) -> None:
    """By every connection for replication that the server has, or by reading from the slot themselves."""
    with (
        postgres_server(18, f"max_wal_senders={senders}") as dsn,
        fresh_database(dsn, NAME) as database,
    ):
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        entry = source.add(context, NAME, database.dsn, settings=SourceSettings(heartbeat_ms=300))
        try:
            until(lambda: told(context).state is lag.State.STREAMING)
            with closing(taken(database, take)) as other:
                database.run("INSERT INTO t VALUES (1)")
                who = f"process {other.info.backend_pid} of postgres"
                until(lambda: who in told(context).reason, why=lambda: told(context))
                found = told(context)
                assert found.state is lag.State.DEGRADED
                assert words in found.reason
                assert "heartbeat is" in found.reason
                database.run(found.remedy.rpartition("; or ")[2])
                until(lambda: told(context).state is lag.State.STREAMING)
            got, _ = Kafka(context.kafka_bootstrap).committed(entry.tables[0].topic)
            assert [value["after"] for value in got] == [{"id": 1}]
        finally:
            source.remove(context, NAME)
