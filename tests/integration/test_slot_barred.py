"""Who keeps a connector from its slot, as the database tells it, and what ends that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from connectors.base import Capture, Hold, Wait
from connectors.postgres import PostgresSource
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server
from tests.support.waiting import until

pytestmark = pytest.mark.stack

T, ROLE = TableId("public", "t"), "reads"
MADE = "SELECT pg_create_logical_replication_slot('headrace_barred', 'pgoutput')"
DROPPED = "SELECT pg_drop_replication_slot('headrace_barred')"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server(18, "max_wal_senders=1") as dsn:
        yield dsn


@pytest.fixture
def database(server: str) -> Iterator[Database]:
    with fresh_database(server, "barred") as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)", f"CREATE ROLE {ROLE} LOGIN REPLICATION")
        made.run(f"GRANT SELECT ON t TO {ROLE}", "CREATE PUBLICATION headrace_barred FOR TABLE t", MADE)
        yield made
        until(lambda: made.run("SELECT 1 FROM pg_replication_slots WHERE active") == [])
        made.run(DROPPED, f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")


def sender(database: Database, name: str = "reader", user: str = "postgres") -> Any:
    """Return a connection for replication."""
    dsn = psycopg.conninfo.make_conninfo(database.dsn, application_name=name, user=user)
    return closing(psycopg.connect(dsn, replication="database", autocommit=True))


def read(connection: Any) -> None:
    began = connection.pgconn.exec_(
        b"START_REPLICATION SLOT headrace_barred LOGICAL 0/0"
        b" (proto_version '1', publication_names 'headrace_barred')"
    )
    assert began.status == psycopg.pq.ExecStatus.COPY_BOTH, began.error_message


def held(database: Database, user: str = ROLE) -> Hold:
    """Return what a role without rights over others is told."""
    source = PostgresSource(psycopg.conninfo.make_conninfo(database.dsn, user=user))
    schemas = tuple(PostgresSource(database.dsn).catalogue([T]))
    return source.hold(Capture("barred", schemas, "placeholder", "password"))


def barred(database: Database, user: str = ROLE) -> Wait | None:
    return held(database, user).barred


@pytest.mark.parametrize(
    ("user", "words"), [("postgres", " of postgres (reader, from 127.0.0.1, for "), (ROLE, " of postgres")]
)
def test_another_that_reads_from_the_slot(database: Database, user: str, words: str) -> None:
    """It is told with what the role that asks may see of it, and ended as it is told."""
    assert barred(database, user) is None
    with sender(database) as other:
        read(other)
        found = barred(database, user)
        assert found is not None
        assert found.who.startswith(f"process {other.info.backend_pid}{words}")
        assert found.who.endswith("reads from it")
        database.run(found.ends)
        until(lambda: barred(database, user) is None)


def test_the_connector_itself_bars_nobody(database: Database) -> None:
    with sender(database, "Debezium Streaming", ROLE) as own:
        read(own)
        assert barred(database) is None


def test_no_connection_for_replication_that_is_free(database: Database) -> None:
    with sender(database) as other:
        found = barred(database)
        assert found is not None
        assert "max_wal_senders = 1" in found.who
        assert f"process {other.info.backend_pid}" in found.who
        setting, _, ends = found.ends.partition(";  -- then restart Postgres; or ")
        assert setting.startswith("ALTER SYSTEM SET max_wal_senders = ")
        database.run(ends)
        until(lambda: barred(database) is None)


def test_a_role_that_may_replicate_no_more(database: Database) -> None:
    database.run(f"ALTER ROLE {ROLE} NOREPLICATION")
    found = barred(database)
    assert found is not None
    assert ROLE in found.who
    database.run(found.ends)
    assert barred(database) is None


def test_commits_that_come_to_wait_for_the_connector(database: Database) -> None:
    """As the check would have told it, when somebody sets it later."""
    assert held(database).harms == ()
    database.run(
        "ALTER SYSTEM SET synchronous_commit = 'local'",
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
        "SELECT pg_reload_conf()",
    )
    try:
        until(lambda: held(database).harms)
        (found,) = held(database).harms
        assert found.code == "SOURCE_SYNCHRONOUS"
        database.run(*found.hint.rstrip(";").split("; "))
        until(lambda: not held(database).harms)
    finally:
        database.run("ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()")
