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
FOR_A_WHILE = [
    'ALTER TABLE t ALTER k TYPE text COLLATE "C"',
    'ALTER TABLE t ALTER k TYPE text COLLATE "default"',
]
OTHERWISE = {
    "another order for a while": [*FOR_A_WHILE],
    "another order of a column with rights of its own": [GRANT, *FOR_A_WHILE],
    # Postgres is moved to another library: no test can do that to a server, so it says so itself.
    "another library": ["SET allow_system_table_mods = on", NEWER],
}
ALIKE = {
    # Some grant the same rights every few minutes, and a run may take longer than that.
    "a right that is granted again": [GRANT, "VACUUM FULL t", "REINDEX INDEX CONCURRENTLY t_pkey"],
    "larger numbers": ["ALTER TABLE t ALTER n TYPE bigint", "VACUUM FULL t"],
}


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "ordered") as made:
        made.run("CREATE TABLE t (k text, n int, PRIMARY KEY (k, n))")
        yield made


def ordered(database: Database) -> list[list[str | None]]:
    """Return what is told of the order of the table's rows, of each column of its key."""
    (schema,) = PostgresSource(database.dsn).catalogue([T])
    order: list[list[str | None]] = schema.extra["order"]
    return order


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_an_order_that_may_have_been_another_one_is_told_as_another(
    database: Database, otherwise: str
) -> None:
    first, *others = OTHERWISE[otherwise]
    if first == GRANT:
        database.run(first)
    before = ordered(database)
    database.run(first, *others)
    assert ordered(database) != before


@pytest.mark.parametrize("alike", ALIKE)
def test_what_leaves_the_order_alone_is_told_as_the_same(database: Database, alike: str) -> None:
    first, *others = ALIKE[alike]
    if first == GRANT:
        database.run(first)
    before = ordered(database)
    database.run(first, *others)
    assert ordered(database) == before


def test_the_library_of_a_databases_own_order_is_told(server: Database) -> None:
    with fresh_database(server.dsn, "own", "LOCALE_PROVIDER icu ICU_LOCALE 'und' TEMPLATE template0") as made:
        made.run("CREATE TABLE t (k text PRIMARY KEY)")
        ((*_, library, _version),) = ordered(made)
        assert library
