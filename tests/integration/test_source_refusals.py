"""What a database refuses; the statements that are told are pasted from the state that prints them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.control import lag, recover, source
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry
from headrace.model.errors import HeadraceError, SourceError, StackError
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.remedy import bare, carry_out
from tests.support.stack import RunningStack, running_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(300)]

ROLE = "refused"
SLOT = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'headrace_refused'"
LEFT = (
    "SELECT count(*) FROM (SELECT FROM pg_replication_slots WHERE slot_name LIKE 'headrace_refused%'"
    " UNION ALL SELECT FROM pg_publication UNION ALL SELECT FROM pg_tables WHERE schemaname = 'headrace') x"
)


def command(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def checked(*words: str) -> dict[str, dict[str, str]]:
    """Return what a check names as errors, by code."""
    done = command("source", "check", *words, "--json")
    assert done.stdout, (done.output, done.exception)
    found = json.loads(done.stdout)
    errors = {one["code"]: one for one in found["findings"] if one["severity"] == "error"}
    assert found["fit"] == (not errors)
    return errors


def paste(database: Database, *told: dict[str, str]) -> None:
    for finding in told:
        for statement in finding["hint"].partition("  --")[0].split("; "):
            database.run(statement)


def test_the_settings_of_a_server_that_are_told() -> None:
    """A log that tells too little, and no slot and no sender left: pasted, and restarted as it is told."""
    with running_stack(only={"postgres"}) as own:
        dsn = own.endpoints.postgres_dsn
        database = Database(dsn)

        def restart() -> None:
            own.stack.down()
            own.stack.up(only={"postgres"})

        database.run(
            "CREATE TABLE t (id int PRIMARY KEY)",
            "ALTER SYSTEM SET wal_level = 'replica'",
            "ALTER SYSTEM SET max_replication_slots = 1",
            "ALTER SYSTEM SET max_wal_senders = 1",
        )
        restart()
        database.run("SELECT pg_create_physical_replication_slot('standby')")
        with psycopg.connect(dsn, replication="true", autocommit=True):
            told = checked(dsn)
        assert set(told) == {"SOURCE_WAL_LEVEL", "SOURCE_SLOTS", "SOURCE_SENDERS"}
        assert all(finding["hint"].endswith("  -- then restart Postgres") for finding in told.values())
        paste(database, *told.values())
        restart()
        with psycopg.connect(dsn, replication="true", autocommit=True):
            assert not checked(dsn)
        database.run("SELECT pg_create_logical_replication_slot('ours', 'pgoutput')")


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    """As the superuser, with a table of a role that has what it needs and no more."""
    with fresh_database(stack.endpoints.postgres_dsn, "refused") as made:
        made.run(
            f"CREATE ROLE {ROLE} LOGIN REPLICATION PASSWORD 'of-the-role'",
            f"GRANT CREATE ON DATABASE refused TO {ROLE}",
            "CREATE TABLE t (id int PRIMARY KEY)",
            f"ALTER TABLE t OWNER TO {ROLE}",
            "INSERT INTO t SELECT generate_series(1, 9)",
        )
        try:
            yield made
        finally:
            made.run(f"DROP OWNED BY {ROLE} CASCADE", f"DROP ROLE {ROLE}")


def of_role(database: Database) -> str:
    place = urlsplit(database.dsn)
    return urlunsplit(place._replace(netloc=f"{ROLE}:of-the-role@{place.netloc.rpartition('@')[2]}"))


@contextmanager
def held(database: Database) -> Iterator[None]:
    """Read from the slot, as another program does; it may be ended."""
    session: Any = psycopg.connect(database.dsn, replication="database", autocommit=True)
    try:
        began = session.pgconn.exec_(
            b"START_REPLICATION SLOT headrace_refused LOGICAL 0/0"
            b" (proto_version '1', publication_names 'headrace_refused')"
        )
        assert began.status == psycopg.pq.ExecStatus.COPY_BOTH, began.error_message
        yield
    finally:
        session.close()


@contextmanager
def stopped(context: Context, database: Database) -> Iterator[None]:
    """Have a source whose connector has let its slot go."""
    source.add(context, "refused", of_role(database))
    try:
        with Connect(context.connect_url) as connect:
            connect.stop("headrace_refused")
        until(lambda: database.value(SLOT) is None)
        yield
    finally:
        if "refused" in [entry.name for entry in Registry(context.registry).sources()]:
            source.remove(context, "refused")


def test_a_slot_of_that_name_that_nobody_uses(
    context: Context, database: Database, stack: RunningStack
) -> None:
    database.run("SELECT pg_create_logical_replication_slot('headrace_refused', 'pgoutput')")
    with pytest.raises(SourceError) as caught:
        source.add(context, "refused", of_role(database))
    assert caught.value.code == "SOURCE_SLOT_TAKEN"
    _, _, statement = caught.value.hint.partition("any more: ")
    database.run(statement)
    source.add(context, "refused", of_role(database))
    source.remove(context, "refused")
    assert database.value(LEFT) == 0


def test_a_slot_that_another_session_holds(context: Context, database: Database, stack: RunningStack) -> None:
    """The session is another role's, so that ours may not end it."""
    with stopped(context, database), held(database):
        with pytest.raises(SourceError) as caught:
            source.remove(context, "refused")
        assert caught.value.code == "SOURCE_SLOT_BUSY"
        assert str(database.value(SLOT)) in caught.value.message
        carry_out(caught.value.hint, stack.home.root, database.run)
        assert "refused" not in [entry.name for entry in Registry(context.registry).sources()]
        assert database.value(LEFT) == 0


def state_of(context: Context) -> lag.State:
    return next(one.state for one in lag.measure(context).sources if one.source == "refused")


def test_a_slot_that_another_session_holds_while_its_source_is_recovered(
    context: Context, database: Database, stack: RunningStack
) -> None:
    with stopped(context, database), held(database):
        with pytest.raises(SourceError) as caught:
            recover.recover(context, "refused")
        assert caught.value.code == "SOURCE_SLOT_BUSY"
        carry_out(caught.value.hint, stack.home.root, database.run)
        until(lambda: state_of(context) is lag.State.STREAMING)


def test_a_source_whose_connect_is_gone_is_removed_as_it_is_told(
    context: Context, database: Database, stack: RunningStack
) -> None:
    """The slot goes, and the connector makes no other when its worker is back; the same name can be added."""
    source.add(context, "refused", of_role(database))
    gone = replace(context, connect_url="http://127.0.0.1:9", kafka_bootstrap="127.0.0.1:9")
    with pytest.raises(StackError) as caught:
        source.remove(gone, "refused")
    assert (caught.value.code, database.value(LEFT)) == ("CONNECT_UNREACHABLE", 4)
    assert caught.value.hint.endswith("headrace source remove refused --leave-connect")
    said: list[str] = []
    left = source.remove(gone, "refused", leave_connect=True, say=said.append)
    assert "headrace_refused" in left.apart
    assert "headrace_refused" in said[-1]
    assert database.value(LEFT) == 0
    with Connect(context.connect_url) as connect:
        connect.restart("headrace_refused")
        until(lambda: connect.state("headrace_refused").failed)
    assert database.value(LEFT) == 0
    source.add(context, "refused", of_role(database))
    source.remove(context, "refused")
    assert database.value(LEFT) == 0


@pytest.mark.deep
def test_a_source_of_which_every_server_is_gone_is_let_go_by_what_is_told(
    context: Context, database: Database
) -> None:
    """Each hint keeps what the one before has led to."""
    source.add(context, "refused", of_role(database))
    gone = replace(context, connect_url="http://127.0.0.1:9", kafka_bootstrap="127.0.0.1:9")
    registry = Registry(context.registry)
    address = registry.source("refused").address
    with registry.begin() as session:
        session.get_one(SourceEntry, "refused").address = "postgresql://nobody@127.0.0.1:9/gone"
    flags: dict[str, Any] = {}
    for code, wanted in (
        ("CONNECT_UNREACHABLE", {"leave_connect": True}),
        ("SOURCE_UNREACHABLE", {"leave_connect": True, "leave_database": True}),
    ):
        with pytest.raises(HeadraceError) as caught:
            source.remove(gone, "refused", **flags)
        assert caught.value.code == code
        words = caught.value.hint.rpartition(": ")[2].split()
        assert words[:4] == ["headrace", "source", "remove", "refused"]
        flags = {word.removeprefix("--").replace("-", "_"): True for word in words[4:]}
        assert flags == wanted
    with registry.begin() as session:  # the database is there after all: nothing of this test is to stay
        session.get_one(SourceEntry, "refused").address = address
    assert "headrace_refused" in source.remove(gone, "refused", leave_connect=True).apart
    with Connect(context.connect_url) as connect:
        connect.delete("headrace_refused")
    kafka = Kafka(context.kafka_bootstrap)
    kafka.delete([name for name in kafka.names() if "refused" in name])
    assert database.value(LEFT) == 0


@pytest.mark.parametrize("in_use", [False, True])
def test_what_is_left_in_a_database_that_is_there_after_all(
    context: Context, database: Database, stack: RunningStack, in_use: bool
) -> None:
    """The output of the command is pasted as it stands there."""
    with stopped(context, database):
        done = command("source", "remove", "refused", "--leave-database", "--home", str(stack.home.root))
        assert done.exit_code == 0, done.output
        assert database.value(LEFT) == 4
        statements = [line for line in done.stdout.splitlines() if line.endswith(";")]
        assert len(statements) == 3
        if in_use:
            with held(database):
                database.run(*"".join(statements).split(";")[:-1])
        else:
            database.run(*"".join(statements).split(";")[:-1])
        assert database.value(LEFT) == 0
        source.add(context, "refused", of_role(database))


def test_a_right_that_was_taken_away_is_named_by_the_command_that_is_told(
    context: Context, database: Database, stack: RunningStack
) -> None:
    source.add(context, "refused", of_role(database))
    try:
        database.run(
            "CREATE ROLE refused_owner",
            "ALTER TABLE t OWNER TO refused_owner",
            f"GRANT SELECT ON t TO {ROLE}",
            "ALTER PUBLICATION headrace_refused DROP TABLE t",
            "INSERT INTO t VALUES (10)",
        )
        home = ["--home", str(stack.home.root)]
        denied = command("source", "refresh", "refused", "--json", *home)
        assert denied.exit_code == 1
        error = json.loads(denied.stderr.splitlines()[-1])["error"]
        assert error["code"] == "SOURCE_DENIED"
        _, _, named = bare(error["hint"]).partition("`headrace source check ")
        told = checked(named.partition("`")[0], *home)
        assert set(told) == {"SOURCE_TABLE_OWNER"}
        paste(database, *told.values())
        done = command("source", "refresh", "refused", "--json", *home)
        assert done.exit_code == 0, done.output
        assert database.run("SELECT tablename FROM pg_publication_tables WHERE tablename = 't'")
    finally:
        source.remove(context, "refused")
        database.run("DROP OWNED BY refused_owner CASCADE", "DROP ROLE refused_owner")


def test_our_schema_that_another_role_made(context: Context, database: Database, stack: RunningStack) -> None:
    """Two sources of one database, each under a role of its own, and removed under it."""
    database.run("CREATE TABLE u (id int PRIMARY KEY)")
    source.add(context, "refused_first", database.dsn)
    try:
        with pytest.raises(SourceError) as caught:
            source.add(context, "refused", of_role(database), tables=[TableId("public", "t")])
        assert caught.value.code == "SOURCE_SCHEMA_RIGHT"
        database.run(caught.value.hint)
        source.add(context, "refused", of_role(database), tables=[TableId("public", "t")])
    finally:
        source.remove(context, "refused_first")
    source.remove(context, "refused")
    assert database.value(LEFT) == 0
