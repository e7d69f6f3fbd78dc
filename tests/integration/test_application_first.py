"""What Headrace does to a database lets no statement of the application fail or wait, on any version."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.model.errors import SourceError
from headrace.model.schema import TableId
from tests.support.application import Shape, fit, found, made, outcomes, shapes, table
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.servers import MAJORS, postgres_server
from tests.support.waiting import elapse

pytestmark = pytest.mark.stack

AUTOVACUUM_OFF = "autovacuum=off"


_SERVERS = [pytest.param(major, marks=[] if major == max(MAJORS) else [pytest.mark.deep]) for major in MAJORS]


@pytest.fixture(scope="module", params=_SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    with postgres_server(request.param, AUTOVACUUM_OFF) as dsn:
        yield dsn


def advised(database: Database, shape: Shape) -> list[str]:
    """Return the statements upon a table that ``source check`` advises."""
    hints = [finding.hint.partition("  --")[0] for finding in found(database, shape)]
    return [
        hint for hint in hints if hint.startswith(("ALTER TABLE", "CREATE UNIQUE INDEX")) and "…" not in hint
    ]


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
                    for statement in advised(during, shape):
                        # What is only for the log is not to be felt by who never had it.
                        unfelt = "REPLICA IDENTITY" in statement
                        for database in (during, after) if unfelt else (never, during, after):
                            database.run(statement)
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
