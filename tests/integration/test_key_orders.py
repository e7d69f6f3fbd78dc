"""Keys that the connector's sessions compare otherwise than they sort them: no run reads such a table."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import psycopg
import pytest

from connectors.postgres import PostgresSource
from connectors.postgres.properties import session_settings, startup_options
from connectors.registry import why_unreadable
from headrace.model.schema import TableId, TableSchema
from tests.support.database import Database, fresh_database

pytestmark = pytest.mark.stack

T = TableId("public", "t")
OTHERWISE = "its key holds {}, and the connector finds no > in the order of that type"
HSTORE = "CREATE EXTENSION hstore"
LTREE = "CREATE EXTENSION ltree SCHEMA {}"
CITEXT = "CREATE EXTENSION citext SCHEMA {}"
MOOD = "CREATE TYPE mood AS ENUM ('sad', 'glad')"
AS_TEXT = "CREATE CAST ({} AS {}) WITH INOUT AS IMPLICIT"
GREATER = (
    "CREATE FUNCTION apart(mood, mood) RETURNS boolean LANGUAGE sql AS 'SELECT $1::text > $2::text'",
    "CREATE OPERATOR > (LEFTARG = mood, RIGHTARG = mood, FUNCTION = apart)",
)
WORDS = ("a", "B")
MOODS = ("sad", "glad")
REFUSED = {
    "no operator of that name": ((HSTORE,), "hstore", ("a=>1", "b=>2")),
    "ltree of another schema": ((LTREE.format("elsewhere"),), "elsewhere.ltree", ("a.b", "a.c")),
    "citext of another schema": ((CITEXT.format("elsewhere"),), "elsewhere.citext", WORDS),
    "a domain over citext of another schema": (
        (CITEXT.format("elsewhere"), "CREATE DOMAIN handle AS elsewhere.citext"), "handle", WORDS,
    ),
    "an enum that becomes a text": ((MOOD, AS_TEXT.format("mood", "text")), "mood", MOODS),
    "an enum with an operator of its own": ((MOOD, *GREATER), "mood", MOODS),
    "a range that becomes a text": (
        (AS_TEXT.format("int4range", "text"),), "int4range", ("[9,10)", "[10,11)"),
    ),
}  # fmt: skip
"""What is there → its statements, the key's type, and keys in their order."""
READ = {
    "citext in public": ((CITEXT.format("public"),), "citext", WORDS),
    "citext in the schema of the role": (
        ("CREATE SCHEMA postgres", CITEXT.format("postgres")), "postgres.citext", WORDS,
    ),
    "a domain over citext": ((CITEXT.format("public"), "CREATE DOMAIN d AS citext"), "d", WORDS),
    "ltree in public": ((LTREE.format("public"),), "ltree", ("a.b", "a.c")),
    "an enum of another schema": (
        ("CREATE TYPE elsewhere.mood AS ENUM ('sad', 'glad')",), "elsewhere.mood", MOODS,
    ),
    "an enum that becomes what has no order": ((MOOD, AS_TEXT.format("mood", "varchar")), "mood", MOODS),
    "an enum that others become": ((MOOD, AS_TEXT.format("varchar", "mood")), "mood", MOODS),
    "a domain over a domain": (("CREATE DOMAIN a AS text", "CREATE DOMAIN b AS a"), "b", WORDS[::-1]),
}  # fmt: skip
"""The same of keys that are read."""
OF_POSTGRES = (
    *("boolean", "smallint", "integer", "bigint", "oid", "real", "double precision", "numeric(9, 2)"),
    *("text", "varchar(9)", "char(9)", "uuid", "bytea", "jsonb", "date", "time", "timestamp", "timestamptz"),
    *("interval", "inet", "cidr", "macaddr", "macaddr8", "tsvector", "int4range", "int8range", "numrange"),
    *("tsrange", "tstzrange", "daterange"),
)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "orders") as made:
        made.run("CREATE SCHEMA elsewhere")
        yield made


def registered(database: Database) -> TableSchema:
    """Return the table as the registry has it."""
    (schema,) = PostgresSource(database.dsn).catalogue([T])
    return TableSchema.from_dict(json.loads(json.dumps(schema.as_dict())))


def table_of(kind: str, keys: tuple[str, ...]) -> list[str]:
    """Return the statements that make the table, with a row for each key."""
    rows = ", ".join(f"(1, '{key}')" for key in keys)
    return [
        f"CREATE TABLE public.t (n int, k {kind}, PRIMARY KEY (n, k))", f"INSERT INTO public.t VALUES {rows}",
    ]  # fmt: skip


def read_in_parts(database: Database) -> list[str]:
    """Return the keys that the connector's statements find, a row at a time."""
    path = startup_options({"search_path": session_settings(180_000)["search_path"]})
    found: list[str] = []
    with psycopg.connect(database.dsn, options=path) as connection:
        (first,) = connection.execute("SELECT k::text FROM public.t ORDER BY t.k LIMIT 1").fetchall()
        row: tuple[str] | None = first
        while row:
            found += row
            further = "SELECT k::text FROM public.t WHERE k > %s ORDER BY t.k LIMIT 1"
            row = connection.execute(further, row).fetchone()
    return found


@pytest.mark.parametrize("key", REFUSED)
def test_a_key_that_is_not_compared_as_it_is_sorted_is_refused_by_name(database: Database, key: str) -> None:
    made, kind, keys = REFUSED[key]
    database.run(*made, *table_of(kind, keys))
    with contextlib.suppress(psycopg.errors.UndefinedFunction):
        assert read_in_parts(database) == [keys[0]], "the other is passed over"
    source, schema = PostgresSource(database.dsn), registered(database)
    assert why_unreadable("postgres", schema) == OTHERWISE.format(kind)
    (told,) = [one for one in source.preflight([T]) if one.code == "SOURCE_TABLE_REREAD"]
    assert OTHERWISE.format(kind) in told.message
    assert source.large([schema], 0) == (), "no run is to load it"


@pytest.mark.parametrize("key", READ)
def test_a_key_that_is_compared_as_it_is_sorted_is_read(database: Database, key: str) -> None:
    made, kind, keys = READ[key]
    database.run(*made, *table_of(kind, keys))
    assert read_in_parts(database) == list(keys)
    source, schema = PostgresSource(database.dsn), registered(database)
    assert why_unreadable("postgres", schema) == ""
    assert source.unfit_now([schema]) == {}
    assert source.large([schema], 0) == (T,)


def test_keys_of_postgres_own_types_are_read(database: Database) -> None:
    columns = ", ".join(f"k{number} {kind}" for number, kind in enumerate(OF_POSTGRES))
    names = ", ".join(f"k{number}" for number, _ in enumerate(OF_POSTGRES))
    database.run(f"CREATE TABLE t ({columns}, PRIMARY KEY ({names}))")
    assert why_unreadable("postgres", registered(database)) == ""


def test_what_is_not_in_the_key_may_be_compared_as_it_likes(database: Database) -> None:
    database.run(HSTORE, CITEXT.format("elsewhere"))
    database.run("CREATE TABLE t (k int PRIMARY KEY, h hstore, c elsewhere.citext)")
    assert why_unreadable("postgres", registered(database)) == ""


def test_a_key_that_is_declared_is_asked_about_as_well(database: Database) -> None:
    database.run(
        CITEXT.format("elsewhere"), "CREATE TABLE t (id int PRIMARY KEY, c elsewhere.citext NOT NULL)"
    )
    (schema,) = PostgresSource(database.dsn).catalogue([T], {T: ("c",)})
    assert why_unreadable("postgres", schema) == OTHERWISE.format("elsewhere.citext")


def test_an_extension_that_is_moved_is_told_before_a_run_reads(database: Database) -> None:
    database.run(CITEXT.format("public"), "CREATE TABLE t (k citext PRIMARY KEY)")
    source, schema = PostgresSource(database.dsn), registered(database)
    assert source.unfit_now([schema]) == {}
    database.run("ALTER EXTENSION citext SET SCHEMA elsewhere")
    found = source.unfit_now([schema])
    assert [(one.code, one.hint) for one in found.values()] == [
        ("RESNAPSHOT_UNREADABLE", "headrace recover SOURCE")
    ]
    assert OTHERWISE.format("citext") in found[T].message
