"""What a check says of a server before anything is done to it, and what helps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from connectors.base import Capture, Wait
from connectors.postgres import PostgresSource
from connectors.postgres.address import parameters
from connectors.postgres.session import session
from connectors.postgres.waits import open_transactions
from headrace.control import source_check
from headrace.model.errors import SourceError
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId
from tests.support.certificate import self_signed
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server
from tests.support.waiting import until

pytestmark = pytest.mark.stack

T = TableId("public", "t")
ROLE = "plain"


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    settings = ("max_prepared_transactions=4", "max_connections=40")
    with postgres_server(18, *settings) as dsn:
        yield Database(dsn)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "checked") as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)")
        yield made


def told(database: Database, **login: str) -> dict[str, Any]:
    """Return code → finding, of what is not well."""
    dsn = psycopg.conninfo.make_conninfo(database.dsn, **login)
    found = PostgresSource(dsn).preflight([T])
    return {one.code: one for one in found if one.severity is not Severity.OK}


def waits(database: Database) -> tuple[Wait, ...]:
    with session(parameters(database.dsn)) as connection:
        return open_transactions(connection, longer_than_s=0)


def test_a_slot_that_would_be_lost_while_the_connector_rests(database: Database) -> None:
    """What is told is done; then nothing of it is told any more."""
    database.run(
        "ALTER SYSTEM SET idle_replication_slot_timeout = '60s'",
        "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'",
        "SELECT pg_reload_conf()",
    )
    until(lambda: told(database).keys() >= {"SOURCE_SLOT_IDLE", "SOURCE_WAL_SHORT"})
    found = told(database)
    assert found["SOURCE_SLOT_IDLE"].severity is found["SOURCE_WAL_SHORT"].severity is Severity.WARNING
    assert "60 s" in found["SOURCE_SLOT_IDLE"].message
    for code in ("SOURCE_SLOT_IDLE", "SOURCE_WAL_SHORT"):
        for statement in found[code].hint.rstrip(";").split("; "):
            database.run(statement)
    until(lambda: not told(database).keys() & {"SOURCE_SLOT_IDLE", "SOURCE_WAL_SHORT"})


@pytest.mark.parametrize("names", ["*", "2 (*)", 'ANY 1 (far, "*")'])
def test_commits_that_would_wait_for_the_connector(database: Database, names: str) -> None:
    database.run(
        "ALTER SYSTEM SET synchronous_commit = 'local'",
        f"ALTER SYSTEM SET synchronous_standby_names = '{names}'",
        "SELECT pg_reload_conf()",
    )
    try:
        until(lambda: "SOURCE_SYNCHRONOUS" in told(database))
        found = told(database)["SOURCE_SYNCHRONOUS"]
        assert found.severity is Severity.ERROR
        database.run(*found.hint.rstrip(";").split("; "))
        until(lambda: "SOURCE_SYNCHRONOUS" not in told(database))
    finally:
        database.run("ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()")


def test_whom_the_slot_would_wait_for_in_any_database(database: Database, server: Database) -> None:
    """Of others a role without rights sees no ages, but who stays is found all the same."""
    server.run("CREATE TABLE elsewhere (i int)")
    database.run(f"CREATE ROLE {ROLE} LOGIN REPLICATION", f"ALTER TABLE t OWNER TO {ROLE}")
    database.run(f"GRANT CREATE ON DATABASE checked TO {ROLE}")
    assert "SOURCE_LONG_TRANSACTION" not in told(database)
    with psycopg.connect(server.dsn) as other:
        other.execute("INSERT INTO elsewhere VALUES (1)")
        pid = other.info.backend_pid
        assert "SOURCE_LONG_TRANSACTION" not in told(database), "it is young"
        found = told(database, user=ROLE)["SOURCE_LONG_TRANSACTION"]
        assert f"process {pid} of postgres in database postgres" in found.message
        assert found.hint == f"SELECT pg_terminate_backend({pid});"
        other.rollback()
        other.execute("INSERT INTO elsewhere VALUES (2)")
        other.execute("PREPARE TRANSACTION 'o''clock'")
    (wait,) = waits(database)
    assert "'o''clock' of postgres in database postgres" in wait.who
    server.run(wait.ends.partition("  --")[0])
    assert not waits(database)
    database.run(f"DROP OWNED BY {ROLE} CASCADE", f"DROP ROLE {ROLE}")


SLOT = "SELECT pg_create_logical_replication_slot('headrace_audited', 'pgoutput')"


def test_a_role_that_may_replicate_no_more_lets_go_of_all_but_the_slot(database: Database) -> None:
    database.run(
        f"CREATE ROLE {ROLE} LOGIN REPLICATION",
        f"ALTER TABLE t OWNER TO {ROLE}",
        f"GRANT CREATE ON DATABASE checked TO {ROLE}",
    )
    try:
        source = PostgresSource(psycopg.conninfo.make_conninfo(database.dsn, user=ROLE))
        capture = Capture("audited", tuple(source.catalogue([T])), "placeholder", "password")
        source.setup(capture)
        database.run(SLOT, f"ALTER ROLE {ROLE} NOREPLICATION")
        left = source.teardown(capture)
        assert left.slot
        assert "permission denied" in left.why
        assert database.run("SELECT 1 FROM pg_publication") == []
        assert database.run("SELECT 1 FROM pg_namespace WHERE nspname = 'headrace'") == []
        (statement,) = left.statements
        database.run(*statement.removesuffix(";").split("; "))
        assert database.run("SELECT 1 FROM pg_replication_slots") == []
        assert source.teardown(capture).statements == ()
    finally:
        database.run(f"DROP OWNED BY {ROLE} CASCADE", f"DROP ROLE {ROLE}")


@pytest.mark.parametrize("name", ["a+b", "a%20b", "a?b", "a${b}", " a", "a\t"])
def test_a_name_that_the_connectors_driver_reads_otherwise(server: Database, name: str) -> None:
    with fresh_database(server.dsn, name) as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)")
        found = told(made)["SOURCE_DATABASE_NAME"]
        assert found.severity is Severity.ERROR
        server.run(found.hint.partition("  --")[0].replace("…", "renamed"))
        renamed = Database(psycopg.conninfo.make_conninfo(server.dsn, dbname="renamed"))
        assert "SOURCE_DATABASE_NAME" not in told(renamed)
        server.run("DROP DATABASE renamed")


def test_a_database_whose_bytes_have_no_meaning(server: Database) -> None:
    server.run(
        "DROP DATABASE IF EXISTS bytes",
        "CREATE DATABASE bytes ENCODING SQL_ASCII TEMPLATE template0 LOCALE 'C'",
    )
    made = Database(psycopg.conninfo.make_conninfo(server.dsn, dbname="bytes"))
    made.run("CREATE TABLE t (id int PRIMARY KEY)")
    assert told(made)["SOURCE_ENCODING"].severity is Severity.ERROR
    made.run("DO $$ BEGIN EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY)', E'\\xfc'); END $$")
    with pytest.raises(SourceError) as caught:
        source_check.check(urlunsplit(urlsplit(server.dsn)._replace(path="/bytes")))
    assert caught.value.code == "SOURCE_ENCODING"


def test_a_partition_that_is_locked_keeps_no_look_waiting(database: Database) -> None:
    parted = TableId("public", "parted")
    database.run(
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF parted DEFAULT",
    )
    source = PostgresSource(database.dsn)

    def look() -> list[Finding]:
        capture = Capture("locked", tuple(source.catalogue([parted])), "placeholder", "password")
        source.large(capture.tables, 0)
        source.hold(capture)
        return source.preflight([parted], partitions=2)

    with psycopg.connect(database.dsn) as other, ThreadPoolExecutor(1) as aside:
        other.execute("LOCK TABLE leaf")
        found = aside.submit(look)
        try:
            until(found.done)
        finally:
            other.rollback()
    assert [one for one in found.result() if one.severity is Severity.ERROR] == []


def test_a_table_that_cannot_be_asked_keeps_no_other_from_being_checked(database: Database) -> None:
    """What is wrong with each is said of it: `--skip-unfit` leaves out those alone."""
    database.run(
        f"CREATE ROLE {ROLE} LOGIN REPLICATION",
        f"ALTER TABLE t OWNER TO {ROLE}",
        f"GRANT CREATE ON DATABASE checked TO {ROLE}",
        "CREATE SCHEMA shut",
        "CREATE TABLE shut.behind (id int PRIMARY KEY, at timestamptz)",
        "CREATE TABLE policed (id int PRIMARY KEY, at timestamptz)",
        "INSERT INTO policed VALUES (1, 'now')",
        "ALTER TABLE policed ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON policed USING (id = current_setting('app.tenant')::int)",
        "CREATE FOREIGN DATA WRAPPER nobody",
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nobody",
        "CREATE TABLE parted (id int NOT NULL, at timestamptz) PARTITION BY RANGE (id)",
        "CREATE FOREIGN TABLE abroad PARTITION OF parted DEFAULT SERVER elsewhere",
        "CREATE TABLE base (id int PRIMARY KEY, at timestamptz, days date)",
        "CREATE FOREIGN TABLE heir () INHERITS (base) SERVER elsewhere",
        f"GRANT SELECT ON shut.behind, policed, parted, base TO {ROLE}",
    )
    tables = [T, TableId("shut", "behind"), *(TableId("public", n) for n in ("policed", "parted", "base"))]
    login = psycopg.conninfo.make_conninfo(database.dsn, user=ROLE)
    try:
        for filtering in ("on", "off"):
            database.run(f"ALTER ROLE {ROLE} SET row_security = {filtering}")
            found = PostgresSource(login).preflight(tables)
            errors = {(str(f.table), f.code) for f in found if f.severity is Severity.ERROR}
            assert {
                ("shut.behind", "SOURCE_SELECT_RIGHT"),
                ("public.policed", "SOURCE_ROW_SECURITY"),
                ("public.parted", "SOURCE_TABLE_KIND"),
                ("public.base", "SOURCE_TABLE_INHERITED"),
            } <= errors
            assert not [code for table, code in errors if table == str(T)]
            unseen = [f for f in found if f.code == "SOURCE_VALUES_UNSEEN"]
            assert {str(f.table) for f in unseen} == {"public.base"}
            assert len(unseen) == 2
    finally:
        database.run(f"DROP OWNED BY {ROLE} CASCADE", f"DROP ROLE {ROLE}")


def test_too_few_connections_are_told_with_the_limit(database: Database) -> None:
    database.run(f"CREATE ROLE {ROLE} LOGIN REPLICATION CONNECTION LIMIT 3", f"ALTER TABLE t OWNER TO {ROLE}")
    try:
        found = told(database, user=ROLE)["SOURCE_CONNECTIONS"]
        assert found.severity is Severity.ERROR
        assert f'the role "{ROLE}" is 3' in found.message
        database.run(found.hint)
        assert "SOURCE_CONNECTIONS" not in told(database, user=ROLE)
        database.run(f"ALTER ROLE {ROLE} CONNECTION LIMIT 0")
        with pytest.raises(SourceError) as caught:
            told(database, user=ROLE)
        assert caught.value.code == "SOURCE_UNREACHABLE"
        assert "password" not in caught.value.hint
        assert "raise the limit" in caught.value.hint
    finally:
        database.run(f"DROP OWNED BY {ROLE} CASCADE", f"DROP ROLE {ROLE}")


def test_settings_of_others_end_no_session_of_ours(database: Database) -> None:
    """Set on role and database: what a session may overrule it overrules."""
    database.run(
        "ALTER DATABASE checked SET transaction_timeout = '300ms'",
        "ALTER DATABASE checked SET statement_timeout = '200ms'",
        "ALTER ROLE postgres IN DATABASE checked SET idle_in_transaction_session_timeout = '100ms'",
        "ALTER DATABASE checked SET default_transaction_read_only = on",
        "ALTER DATABASE checked SET DateStyle = 'SQL, DMY'",
    )
    source = PostgresSource(database.dsn)
    assert source.select("SELECT pg_sleep(0.5)")
    assert source.select("SELECT date '2026-02-01'::text AS day") == [{"day": "2026-02-01"}]
    capture = Capture("limits", tuple(source.catalogue([T])), "placeholder", "password")
    source.setup(capture)
    assert source.teardown(capture).statements == ()


def test_a_way_that_others_can_read_or_answer_on_is_told(server: Database, database: Database) -> None:
    """What is told is done; then nothing of it is told any more."""
    elsewhere = {"host": "db.example", "hostaddr": "127.0.0.1"}
    unsafe = {"SOURCE_UNENCRYPTED", "SOURCE_UNVERIFIED"}
    assert not told(database).keys() & unsafe, "nobody is on the way within a machine"
    found = told(database, **elsewhere)
    assert found.keys() & unsafe == {"SOURCE_UNENCRYPTED"}
    assert found["SOURCE_UNENCRYPTED"].severity is Severity.WARNING
    assert "db.example" in found["SOURCE_UNENCRYPTED"].message
    data = Path(server.value("SHOW data_directory"))
    self_signed(data / "server.key", data / "server.crt", "db.example")
    for path in (data / "server.key", data / "server.crt"):
        os.chown(path, data.stat().st_uid, data.stat().st_gid)
    server.run("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
    until(lambda: told(database, **elsewhere).keys() & unsafe == {"SOURCE_UNVERIFIED"})
    encrypted = told(database, **elsewhere, sslmode="require")
    assert "sslmode=require" in encrypted["SOURCE_UNVERIFIED"].message
    verified = {"sslmode": "verify-full", "sslrootcert": str(data / "server.crt")}
    assert not told(database, **elsewhere, **verified).keys() & unsafe
    with pytest.raises(SourceError, match="certificate"):
        told(database, host="other.example", hostaddr="127.0.0.1", **verified)
