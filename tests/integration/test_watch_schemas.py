"""What a look says of the schema that captured tables are in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from connectors.watch import Sight, Watch
from tests.support.database import Database, fresh_database

pytestmark = pytest.mark.stack

NAME = "schemas"
_AWAY = (
    "ALTER SCHEMA shop RENAME TO elsewhere;INSERT INTO elsewhere.orders VALUES (1);"
    "ALTER SCHEMA elsewhere RENAME TO shop"
)


@pytest.fixture
def database(quiet_server: str) -> Iterator[Database]:
    with fresh_database(quiet_server, NAME) as made:
        made.run("CREATE SCHEMA shop", "CREATE TABLE shop.orders (id int PRIMARY KEY)")
        yield made


@pytest.fixture
def watch(database: Database) -> Iterator[Watch]:
    source = PostgresSource(database.dsn)
    tables = tuple(source.catalogue(source.tables(["shop"])))
    capture = Capture(NAME, tables, "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        yield watch
    finally:
        watch.close()
        source.teardown(capture)


def codes(sight: Sight) -> list[str]:
    return [trouble.code for trouble in sight.troubles]


def test_a_schema_that_had_another_name_for_a_while_is_told(database: Database, watch: Watch) -> None:
    """The connector passes over what is written to a table under a name that it does not know."""
    first = watch.look({})
    database.run(_AWAY)
    second = watch.look(first.facts)
    assert codes(second) == ["TABLE_RENAMED"]
    assert codes(watch.look(second.facts)) == []


def test_rights_upon_a_schema_are_no_news(database: Database, watch: Watch) -> None:
    sight = watch.look({})
    for statement in (
        "COMMENT ON SCHEMA shop IS 'of orders'",
        "ALTER SCHEMA shop OWNER TO CURRENT_USER",
        "GRANT USAGE ON SCHEMA shop TO PUBLIC",
        "GRANT USAGE ON SCHEMA shop TO PUBLIC",  # says the same, and writes the catalogue's row all the same
        "REVOKE USAGE ON SCHEMA shop FROM PUBLIC",
    ):
        database.run(statement)
        sight = watch.look(sight.facts)
        assert codes(sight) == [], statement
