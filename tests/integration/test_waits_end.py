"""What `source add` waits for has an end: it says who is waited for, or how often, and leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread

import psycopg
import pytest

from connectors.postgres import patience
from headrace.config.source import SourceSettings
from headrace.control import lag, source, streaming
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.model.errors import SourceError
from tests.support.database import Database, fresh_database
from tests.support.leftovers import left_by_source
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import ended, stays, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "awaited"
BEAT = SourceSettings(heartbeat_ms=300)
_COMES_BACK_S = 5.0
"""Longer than the connector pauses before it begins again."""


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as made:
        made.run(
            "CREATE TABLE first (id int PRIMARY KEY)",
            "CREATE TABLE second (id int PRIMARY KEY)",
            "INSERT INTO first VALUES (1)",
            "INSERT INTO second VALUES (1)",
        )
        yield made
        if NAME in [entry.name for entry in Registry(context.registry).sources()]:
            source.remove(context, NAME)


def refused(context: Context, database: Database, code: str, say: source.Say = lambda _: None) -> SourceError:
    """Return what the command is refused with, which has left nothing, nor makes anything later."""
    with pytest.raises(SourceError) as caught:
        source.add(context, NAME, database.dsn, settings=BEAT, say=say)
    assert caught.value.code == code
    stays(lambda: left_by_source(context, database, NAME) == {}, _COMES_BACK_S)
    return caught.value


def works(context: Context, database: Database) -> None:
    source.add(context, NAME, database.dsn, settings=BEAT)
    until(lambda: lag.measure(context).sources[0].state is lag.State.STREAMING)


def test_a_table_that_stays_locked(
    context: Context, database: Database, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its session is ended.
    with suppress(psycopg.OperationalError), psycopg.connect(database.dsn) as other:
        other.execute("LOCK TABLE first IN SHARE UPDATE EXCLUSIVE MODE")  # as VACUUM does
        with monkeypatch.context() as hasty:
            hasty.setattr(patience, "_WITHIN_S", 1.0)
            error = refused(context, database, "SOURCE_LOCKED")
        assert f"process {other.info.backend_pid} of postgres in database {NAME}" in error.message
        carry_out(error.hint.partition("  --")[0], stack.home.root, database.run)
        works(context, database)


def test_a_slot_that_waits_for_others(
    context: Context, database: Database, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        fresh_database(stack.endpoints.postgres_dsn, "held_open") as elsewhere,
        suppress(psycopg.OperationalError),  # its session is ended
        psycopg.connect(elsewhere.dsn) as other,
    ):
        other.execute("CREATE TABLE held_open (i int)")
        with monkeypatch.context() as hasty:
            hasty.setattr(streaming, "_SLOT_S", 2.0)
            error = refused(context, database, "SOURCE_WAITS")
        assert f"process {other.info.backend_pid} of postgres in database held_open" in error.message
        assert error.hint.endswith(" -- then: add the source again")
        carry_out(error.hint, stack.home.root, database.run)
        works(context, database)


def test_a_connector_that_somebody_stops_meanwhile(
    context: Context, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database.dsn) as other, monkeypatch.context() as hasty:
        other.execute("SELECT pg_current_xact_id()")

        def say(doing: str) -> None:
            if doing.startswith("Postgres waits"):
                with Connect(context.connect_url) as connect:
                    connect.stop(f"headrace_{NAME}")
                hasty.setattr(streaming, "_TASK_START_S", 2.0)
                other.rollback()

        error = refused(context, database, "CONNECTOR_NOT_STARTED", say)
    assert "STOPPED" in error.message
    assert error.hint.endswith("Then: add the source again")
    works(context, database)


@pytest.mark.parametrize("table", ["first", "second"])
def test_a_load_that_begins_again_and_again(
    context: Context, database: Database, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Before its first row, which the connector takes for a load that was read, or behind it."""
    monkeypatch.setattr(streaming, "MOST_ATTEMPTS", 2)
    made = f"slot_name = 'headrace_{NAME}' AND confirmed_flush_lsn IS NOT NULL"
    waiting = f"application_name = 'headrace_{NAME}' AND wait_event_type = 'Lock'"
    over, said = Event(), list[str]()

    def hinder() -> None:
        """Lock the table once there is a slot, which would wait for the lock; end whoever is to read it."""
        with psycopg.connect(database.dsn, autocommit=True) as other:
            while not other.execute(f"SELECT FROM pg_replication_slots WHERE {made}".encode()).fetchall():
                if over.wait(0.005):
                    return
            with other.transaction():
                other.execute(f"LOCK TABLE {table}".encode())
                while not over.wait(0.2):
                    database.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {waiting}")

    thread = Thread(target=hinder)
    thread.start()
    try:
        error = refused(context, database, "SOURCE_LOAD_RESTARTS", said.append)
    finally:
        over.set()
        ended(thread)
    assert "3 times" in error.message
    assert "terminating connection due to administrator command" in error.message
    assert error.hint.endswith("add the source again")
    assert [text for text in said if text.startswith(("reading the tables", "the connector was interrupted"))]
    works(context, database)
