"""Values that are looked up by key: whatever the table is called, has lost, or has become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pytest

from connectors.doubt import UNREADABLE
from connectors.postgres import PostgresSource, lookup
from headrace.model.errors import SourceError
from headrace.model.key import Key
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack

T = TableId("public", "t")


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "lookups") as database:
        yield database


@pytest.fixture
def source(database: Database) -> Iterator[PostgresSource]:
    source = PostgresSource(database.dsn)
    yield source
    source.close()


def found(
    source: PostgresSource, keys: Sequence[str], *columns: str, table: TableId = T
) -> Mapping[str | None, Mapping[str, Any]]:
    (schema,) = source.catalogue([table])
    told = source.lookup(schema, [Key.of([key]) for key in keys], columns, ())
    return {key.parts[0]: row for key, row in told.items()}


def test_any_name_will_do(database: Database, source: PostgresSource) -> None:
    name, column = TableId("public", "t %s"), "margin %"
    database.run(
        f'CREATE TABLE {name.quoted} ("k %d" int PRIMARY KEY, "{column}" text'
        " GENERATED ALWAYS AS (\"k %d\" || '%') STORED)",
        f"INSERT INTO {name.quoted} VALUES (1)",
    )
    assert found(source, ["1"], column, table=name) == {"1": {column: "1%"}}


def test_what_the_table_has_lost_is_left_out_and_what_it_has_become_is_told(
    database: Database, source: PostgresSource
) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int GENERATED ALWAYS AS (id) STORED,"
        " b float8 GENERATED ALWAYS AS (id) STORED, c int GENERATED ALWAYS AS (id) STORED,"
        " late timestamp GENERATED ALWAYS AS (timestamp '294276-12-31 23:59:59') STORED)",
        "INSERT INTO t VALUES (1)",
    )
    (schema,) = source.catalogue([T])
    database.run("ALTER TABLE t DROP a, DROP b, ADD b text GENERATED ALWAYS AS ('v' || id::text) STORED")
    key = Key.of(["1"])
    assert source.lookup(schema, [key], ["a", "b", "c", "late"], ()) == {
        key: {"b": UNREADABLE, "c": 1, "late": UNREADABLE}
    }


def test_a_key_that_no_row_can_have_any_more_is_of_no_row(database: Database, source: PostgresSource) -> None:
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE t (k mood PRIMARY KEY, g int GENERATED ALWAYS AS (1) STORED)",
        "INSERT INTO t VALUES ('sad'), ('ok')",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
    )
    assert found(source, ["sad", "ok", "blue"], "g") == {"ok": {"g": 1}, "blue": {"g": 1}}


def test_a_key_whose_type_lives_in_a_schema_of_its_own(database: Database, source: PostgresSource) -> None:
    database.run(
        'CREATE SCHEMA "e x"',
        'CREATE EXTENSION citext SCHEMA "e x"',
        'CREATE TABLE t (k "e x".citext PRIMARY KEY, g int GENERATED ALWAYS AS (1) STORED)',
        "INSERT INTO t VALUES ('Ab')",
    )
    assert found(source, ["aB"], "g") == {"aB": {"g": 1}}, "its own operator takes both for the same"


@pytest.mark.parametrize("key", ["int[]", "text[]"])
def test_rows_that_cannot_be_asked_for_have_no_looked_up_columns(
    database: Database, source: PostgresSource, key: str
) -> None:
    database.run(f"CREATE TABLE t (k {key} PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n) STORED)")
    (schema,) = source.catalogue([T])
    assert [column.name for column in schema.columns] == ["k", "n"]
    assert "g" in schema.extra["excluded"]


def test_fewer_are_asked_for_where_so_many_do_not_come_in_time(
    database: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = lookup._rows

    def late(connection: Any, statement: Any, values: Sequence[Sequence[str]] = ()) -> list[Any]:
        if values and len(values[0]) > 10:
            raise psycopg.errors.QueryCanceled("so many do not come in time")
        return answered(connection, statement, values)

    monkeypatch.setattr(lookup, "_rows", late)
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED)",
        "INSERT INTO t SELECT generate_series(1, 64)",
    )
    keys = [str(number) for number in range(1, 65)]
    for _ in range(3):  # 64, 32, 16
        with pytest.raises(SourceError):
            found(source, keys, "g")
    assert found(source, keys, "g") == {key: {"g": 2 * int(key)} for key in keys}
