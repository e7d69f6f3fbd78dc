"""What Headrace does to a database lets no statement of the application fail or wait, on any version."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.model.errors import SourceError
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.application import Shape, fit, found, made, outcomes, shapes, table
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.servers import MAJORS, postgres_server
from tests.support.waiting import elapse, until

pytestmark = pytest.mark.stack

AUTOVACUUM_OFF = "autovacuum=off"


_SERVERS = [pytest.param(major, marks=[] if major == max(MAJORS) else [pytest.mark.deep]) for major in MAJORS]


@pytest.fixture(scope="module", params=_SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    with postgres_server(request.param, AUTOVACUUM_OFF) as dsn:
        yield dsn


def advised(database: Database, shape: Shape) -> list[str]:
    """Return the texts of statements upon a table that ``source check`` advises."""
    hints = [finding.hint.partition("  --")[0] for finding in found(database, shape)]
    return [hint for hint in hints if hint.startswith("SET lock_timeout") and "…" not in hint]


def capture(database: Database, known: list[Shape]) -> Capture:
    keys = {table(shape): shape.key for shape in known if shape.key}
    schemas = PostgresSource(database.dsn).catalogue([table(shape) for shape in known], keys)
    return Capture("first", tuple(schemas), "placeholder", "password")


@pytest.mark.parametrize("follow", [False, True], ids=["as-they-are", "as-advised"])
def test_every_statement_works_as_it_did(server: str, follow: bool) -> None:
    """Every statement upon every shape: without us, while we capture, and after we are gone.

    Its time is that of some hundred statements.
    """
    known = shapes(server)
    with (
        fresh_database(server, "never") as never,
        fresh_database(server, "during") as during,
        fresh_database(server, "after") as after,
    ):
        for database in (never, during, after):
            made(database, known)
        if follow:
            for shape in known:
                # One mend may show the need of the next.
                for _ in range(3):
                    for text in advised(during, shape):
                        # What is only for the log is not to be felt by who never had it.
                        unfelt = "REPLICA IDENTITY" in text
                        for database in (during, after) if unfelt else (never, during, after):
                            database.paste(text)
        captured = fit(during, known)
        assert {"plain", "arrays", "stored", "by_index", "parted", "kid", "declared"} <= {
            s.name for s in captured
        }
        for database in (during, after):
            PostgresSource(database.dsn).setup(capture(database, captured))
        PostgresSource(after.dsn).teardown(capture(after, captured))
        PostgresSource(during.dsn).publish(capture(during, captured))
        for shape in known:
            before = outcomes(never, shape)
            assert [told for told in before if told[1] == "00000"], shape.name
            assert outcomes(during, shape) == before, shape.name
            assert outcomes(after, shape) == before, shape.name


def test_a_lock_that_is_waited_for_keeps_no_statement_waiting(server: str) -> None:
    with fresh_database(server, "locks") as database:
        database.run("CREATE TABLE a (id int PRIMARY KEY, v int)", "CREATE TABLE b (id int PRIMARY KEY)")
        source = PostgresSource(database.dsn)
        schemas = source.catalogue([TableId("public", "a"), TableId("public", "b")])
        wanted = Capture("locks", tuple(schemas), "placeholder", "password")
        failed: list[SourceError] = []

        def register() -> None:
            try:
                source.setup(wanted)
            except SourceError as error:
                failed.append(error)

        with psycopg.connect(database.dsn) as application:
            application.execute("CREATE INDEX ON b (id)")  # its lock stays until the end of the transaction
            thread = threading.Thread(target=register)
            thread.start()
            with psycopg.connect(database.dsn, autocommit=True) as other:
                for _ in range(25):  # while the registration tries, and tries again
                    for statement in (
                        "CREATE INDEX ON b (id)",
                        "ALTER TABLE a ADD IF NOT EXISTS x int",
                        "DELETE FROM a",
                    ):
                        other.execute(statement.encode())
                    elapse(0.1)
            assert thread.is_alive(), "it waits, and no statement has waited for it"
        thread.join(WAIT_S)
        assert not failed
        assert database.value("SELECT count(*) FROM pg_publication_tables") == 4
        source.teardown(wanted)


ADVISED = {
    "SOURCE_IDENTITY_NOTHING": (
        "CREATE TABLE m (id int PRIMARY KEY)",
        "ALTER TABLE m REPLICA IDENTITY NOTHING",
    ),
    "SOURCE_KEY_DEFERRABLE": (
        "CREATE TABLE m (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf (id int PRIMARY KEY DEFERRABLE)",
        "ALTER TABLE m ATTACH PARTITION leaf DEFAULT",
    ),
}


@pytest.mark.parametrize("code", ADVISED)
def test_what_is_advised_keeps_no_statement_waiting_for_long(server: str, code: str) -> None:
    """It is pasted while a transaction is open that has written; another one writes meanwhile."""
    with fresh_database(server, "advice") as database:
        database.run(*ADVISED[code])
        source, wanted = PostgresSource(database.dsn), [TableId("public", "m")]

        def errors() -> dict[str, str]:
            return {one.code: one.hint for one in source.preflight(wanted) if one.severity is Severity.ERROR}

        text = errors()[code]

        def paste() -> None:
            with suppress(psycopg.errors.LockNotAvailable):
                database.paste(text)

        waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
        with psycopg.connect(database.dsn) as application:
            application.execute("INSERT INTO m VALUES (1)")
            thread = threading.Thread(target=paste)
            thread.start()
            until(lambda: database.value(waiting) or not thread.is_alive())
            database.run(f"SET lock_timeout = '{WAIT_S / 5:.0f}s'", "INSERT INTO m VALUES (2)")
        thread.join(WAIT_S)
        assert not thread.is_alive()
        database.paste(text)  # it may be given again
        assert errors() == {}
