"""A table or a type that comes under the name of a captured type: the connector takes one for the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database

pytestmark = pytest.mark.stack

DATED, MOODY, STORED, PLAIN, LEFT = (
    TableId("public", name) for name in ("dated", "moody", "stored", "plain", "left_out")
)
CAME = {
    "a table named like a built-in type": ('CREATE TABLE public."date" (id int PRIMARY KEY)', DATED),
    "a view of a schema that nobody captures": ('CREATE VIEW own."date" AS SELECT 1 AS id', DATED),
    "a table named like a type of another schema": ("CREATE TABLE mood (id int PRIMARY KEY)", MOODY),
    "a type": ("CREATE TYPE own.mood AS (a int)", MOODY),
    "a table named like an extension's type": ("CREATE TABLE hstore (id int PRIMARY KEY)", STORED),
}


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "namesakes") as made:
        made.run(
            "CREATE SCHEMA types",
            "CREATE SCHEMA own",
            "CREATE EXTENSION hstore SCHEMA types",
            "CREATE TYPE types.mood AS ENUM ('good')",
            "CREATE TABLE dated (id int PRIMARY KEY, at date)",
            "CREATE TABLE moody (id int PRIMARY KEY, m types.mood)",
            "CREATE TABLE stored (id int PRIMARY KEY, more types.hstore)",
            "CREATE TABLE plain (id int PRIMARY KEY, v text)",
            "CREATE TABLE left_out (id int PRIMARY KEY, at date, m types.mood, more types.hstore)",
            *(f"ALTER TABLE {one} REPLICA IDENTITY FULL" for one in ("stored", "left_out")),
        )
        yield made


@pytest.mark.parametrize("came", CAME)
def test_a_namesake_of_a_captured_type_is_told_until_it_has_another_name(
    database: Database, came: str
) -> None:
    source = PostgresSource(database.dsn, leave_out={LEFT: ["at", "m", "more"]})
    tables = tuple(source.catalogue([DATED, MOODY, STORED, PLAIN, LEFT]))
    capture = Capture("namesakes", tables, "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        sight = watch.look({})
        assert sight.troubles == ()
        done, meant = CAME[came]
        database.run(done)
        for known in (sight.facts, {}):
            found = watch.look(known).troubles
            told = [(one.table, one.code, one.lost, one.lasts) for one in found]
            assert told == [(meant, "TYPE_NAMESAKE", True, True)]
        (statement,) = (one.statement for one in watch.look({}).troubles)
        database.run(statement.replace("…", "another"))
        assert watch.look(sight.facts).troubles == ()
    finally:
        watch.close()
        source.teardown(capture)
