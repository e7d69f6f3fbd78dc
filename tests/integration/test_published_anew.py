"""A publication that is made anew, as a recovery makes it: none of the application's statements fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import MAJORS, postgres_server

pytestmark = pytest.mark.stack

Anew = Callable[[PostgresSource, Capture], None]
NAME = "anew"
T, U = TableId("public", "t"), TableId("public", "u")
PUBLISHED = (
    "SELECT schemaname || '.' || tablename FROM pg_publication_tables"
    f" WHERE pubname = 'headrace_{NAME}' AND schemaname = 'public' ORDER BY 1"
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server(MAJORS[0]) as dsn:
        yield dsn


@pytest.fixture
def database(server: str) -> Iterator[Database]:
    with fresh_database(server, NAME) as made:
        made.run(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "CREATE TABLE u (id int PRIMARY KEY, v text)",
            "INSERT INTO t VALUES (1, 'a')",
            "INSERT INTO u VALUES (1, 'a')",
        )
        yield made


def recovered(source: PostgresSource, capture: Capture) -> None:
    """Make all anew, as `headrace recover` does."""
    assert source.teardown(capture).statements == ()
    source.setup(capture)


def dropped(source: PostgresSource, capture: Capture) -> None:
    """Publish again what somebody has dropped, as `headrace source refresh` does."""
    Database(source.address).run(f"DROP PUBLICATION headrace_{NAME}")
    source.publish(capture)


@pytest.mark.parametrize("anew", [recovered, dropped])
def test_a_table_without_a_replica_identity_is_not_published_anew(database: Database, anew: Anew) -> None:
    """It is told what it lacks; the statement that is told is carried out, and the table is published."""
    source = PostgresSource(database.dsn)
    capture = Capture(NAME, tuple(source.catalogue([T, U])), "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        database.run("ALTER TABLE t REPLICA IDENTITY NOTHING")
        anew(source, capture)
        database.run("UPDATE t SET v = 'b'", "DELETE FROM t")
        assert database.run(PUBLISHED) == [("public.u",)]
        (trouble,) = watch.look({}).troubles
        assert (trouble.table, trouble.code, trouble.lasts) == (T, "TABLE_UNPUBLISHED", True)
        assert "its replica identity is gone" in trouble.reason
        database.run(trouble.statement)
        source.publish(capture)
        assert database.run(PUBLISHED) == [("public.t",), ("public.u",)]
        assert watch.look({}).troubles == ()
    finally:
        watch.close()
        source.teardown(capture)


def test_a_publication_of_which_no_table_is_fit_has_none(database: Database) -> None:
    source = PostgresSource(database.dsn)
    capture = Capture(NAME, tuple(source.catalogue([T, U])), "placeholder", "password")
    source.setup(capture)
    database.run("ALTER TABLE t REPLICA IDENTITY NOTHING", "ALTER TABLE u REPLICA IDENTITY NOTHING")
    recovered(source, capture)
    database.run("UPDATE t SET v = 'b'", "UPDATE u SET v = 'b'")
    assert database.run(PUBLISHED) == []
    assert set(source.hold(capture).uncaptured) == {T, U}
    source.teardown(capture)
