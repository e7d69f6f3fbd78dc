"""Something else has the name of a captured table: that table is gone, and all others go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.model.errors import SourceError
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database

pytestmark = pytest.mark.stack

T, DECLARED, OTHER = (TableId("public", name) for name in ("orders", "events", "other"))
KEYS = {DECLARED: ("id",)}
BEARERS = {
    "a view": ("CREATE VIEW {0} AS SELECT * FROM {0}_v1",),
    "a materialized view": ("CREATE MATERIALIZED VIEW {0} AS SELECT * FROM {0}_v1",),
    "a foreign table": ("CREATE FOREIGN TABLE {0} (id int NOT NULL, v text) SERVER away",),
    "something else": ("CREATE SEQUENCE {0}",),
}


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "borne") as made:
        made.run(
            "CREATE FOREIGN DATA WRAPPER nowhere",
            "CREATE SERVER away FOREIGN DATA WRAPPER nowhere",
            "CREATE TABLE orders (id int PRIMARY KEY, v text)",
            "CREATE TABLE events (id int NOT NULL UNIQUE, v text)",
            "ALTER TABLE events REPLICA IDENTITY FULL",
            "CREATE TABLE other (id int PRIMARY KEY, v text)",
        )
        yield made


@pytest.mark.parametrize("bearer", BEARERS)
def test_a_table_whose_name_something_else_has_is_gone_and_keeps_no_other(
    database: Database, bearer: str
) -> None:
    source = PostgresSource(database.dsn)
    tables = tuple(source.catalogue([T, DECLARED, OTHER], KEYS))
    capture = Capture("borne", tables, "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        for table in (T, DECLARED):
            database.run(f"ALTER TABLE {table.name} RENAME TO {table.name}_v1")
            database.run(*(one.format(table.name) for one in BEARERS[bearer]))
        for known in (facts, {}):
            sight = watch.look(known)
            assert {(one.table, one.code) for one in sight.troubles} == {
                (T, "TABLE_GONE"),
                (DECLARED, "TABLE_GONE"),
            }
            assert all(one.lasts and f"{bearer} has its name now" in one.reason for one in sight.troubles)
            assert sight.columns.keys() == {OTHER}
        for table in (T, DECLARED):
            with pytest.raises(SourceError) as refused:
                source.catalogue([table], KEYS)
            assert refused.value.code == "SOURCE_TABLE_MISSING"
        assert {table: one.code for table, one in source.unfit_now(tables).items()} == dict.fromkeys(
            (T, DECLARED), "SOURCE_TABLE_MISSING"
        )
        assert {one.code for one in source.preflight([T]) if one.table == T} == {"SOURCE_TABLE_KIND"}
    finally:
        watch.close()
        source.teardown(capture)
