"""What a table's description tells of the order of its rows: a run that goes on after a key needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.postgres import PostgresSource
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database

pytestmark = pytest.mark.stack

T = TableId("public", "t")
NEWER = """
CREATE OR REPLACE FUNCTION pg_catalog.pg_collation_actual_version(oid) RETURNS text
LANGUAGE sql AS $$SELECT 'newer'$$
"""
GRANT = "GRANT SELECT (k) ON t TO PUBLIC"
OTHERWISE = {
    "another order for a while": [
        'ALTER TABLE t ALTER k TYPE text COLLATE "C"',
        'ALTER TABLE t ALTER k TYPE text COLLATE "default"',
    ],
    # Postgres is moved to another library: it says so itself, as no test can do that to a server.
    "another library": [
        "SET allow_system_table_mods = on",
        NEWER,
    ],
}


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "ordered") as made:
        made.run("CREATE TABLE t (k text, n int, PRIMARY KEY (k, n))")
        yield made


def ordered(database: Database) -> object:
    """Return what is told of the order of the table's rows."""
    (schema,) = PostgresSource(database.dsn).catalogue([T])
    return schema.extra["order"]


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_an_order_that_may_have_been_another_one_is_told_as_another(
    database: Database, otherwise: str
) -> None:
    before = ordered(database)
    database.run(*OTHERWISE[otherwise])
    assert ordered(database) != before


def test_what_leaves_the_order_alone_is_told_as_the_same(database: Database) -> None:
    """Some grant the same rights every few minutes, and a run may take longer than that."""
    database.run(GRANT)
    before = ordered(database)
    database.run(GRANT, "ALTER TABLE t ALTER n TYPE bigint", "VACUUM FULL t")
    assert ordered(database) == before
