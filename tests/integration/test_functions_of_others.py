"""Functions that others have made in a schema of everybody's: no session of ours runs one, as our role."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from connectors.postgres.address import parameters
from connectors.postgres.session import connect
from headrace.model.finding import Severity
from headrace.model.key import Key
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server

pytestmark = pytest.mark.stack

T, C = TableId("public", "t"), TableId("public", "c")
CALLED = "PERFORM pg_catalog.nextval('public.called')"
"""A rollback does not undo it."""
# Each fits what is asked better than the function of Postgres that is meant, of which the last part tells.
CLOSER = (
    ("quote_ident(v name)", "text", "pg_catalog.quote_ident(v::text)"),
    ("quote_literal(v name)", "text", "pg_catalog.quote_literal(v::text)"),
    ("starts_with(v varchar, w text)", "boolean", "pg_catalog.starts_with(v::text, w)"),
    ("to_jsonb(v text[])", "jsonb", "pg_catalog.array_to_json(v)::jsonb"),
    ("to_jsonb(v pg_publication)", "jsonb", "pg_catalog.row_to_json(v)::jsonb"),
    ("to_jsonb(v pg_publication_rel)", "jsonb", "pg_catalog.row_to_json(v)::jsonb"),
    ("to_jsonb(v pg_replication_slots)", "jsonb", "pg_catalog.row_to_json(v)::jsonb"),
    ("to_jsonb(v pg_class)", "jsonb", "pg_catalog.row_to_json(v)::jsonb"),
    ("has_database_privilege(v name, w text)", "boolean", "pg_catalog.has_database_privilege(v::text, w)"),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres_server(18) as dsn:
        yield Database(dsn)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "shared") as made:
        yield made


def lure(database: Database) -> None:
    """Make functions in ``public`` that note when they are called; whoever is there may have made them."""
    database.run("CREATE SEQUENCE called")
    for head, result, meant in CLOSER:
        body = f"BEGIN {CALLED}; RETURN {meant}; END"
        database.run(f"CREATE FUNCTION public.{head} RETURNS {result} LANGUAGE plpgsql AS $${body}$$")


def test_none_is_called_by_anything_that_we_do_in_a_database(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, tags int[], n numeric[], i interval)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, '{1}', '{NaN}', 'infinity')",
    )
    lure(database)
    source = PostgresSource(database.dsn)
    capture = Capture("shared", tuple(source.catalogue([T])), "placeholder", "password")
    watch = source.watch(capture)
    try:
        assert [one for one in source.preflight([T]) if one.severity is Severity.ERROR] == []
        source.refuse_taken(capture)
        source.setup(capture)
        source.publish(capture)
        watch.look(watch.look({}).facts)
        source.hold(capture, loading=True)
        key = Key.of(["1"])
        assert source.lookup(capture.tables[0], [key], ["n", "i"], ())[key]["n"] == ["NaN"]
        source.request_snapshot(capture, [T], "order")
        source.forget_orders(capture, ["other"])
        source.check_anew(capture)
        source.teardown(capture)
    finally:
        watch.close()
        source.close()
    assert database.value("SELECT is_called FROM called") is False


def test_a_session_of_ours_sees_no_schema_of_others(database: Database) -> None:
    database.run("ALTER DATABASE shared SET search_path = public, pg_catalog")
    with connect(parameters(database.dsn)) as kept:
        assert kept.execute("SHOW search_path").fetchone() == {"search_path": "pg_catalog, pg_temp"}
    assert PostgresSource(database.dsn).select("SHOW search_path") == [{"search_path": "public, pg_catalog"}]


def test_types_of_everybody_keep_their_names_and_their_operators(database: Database) -> None:
    """One of its own schema is called by it; one that has the name of a type of Postgres, too."""
    database.run(
        "CREATE EXTENSION citext",
        "CREATE SCHEMA own",
        "CREATE TYPE kind AS ENUM ('a')",
        "CREATE TYPE own.\"Kind\" AS ENUM ('a')",
        "CREATE TYPE public.date AS ENUM ('a')",
        "CREATE DOMAIN word AS citext",
        'CREATE TABLE c (k citext, w word, e kind, o own."Kind", d public.date, es text[], n numeric(5,2),'
        " g int GENERATED ALWAYS AS (1) STORED, PRIMARY KEY (k, w, e, o, d))",
        "ALTER TABLE c REPLICA IDENTITY FULL",
        "ALTER TABLE c REPLICA IDENTITY DEFAULT",
        "INSERT INTO c VALUES ('Ab', 'Cd', 'a', 'a', 'a', '{a}', 1)",
    )
    source = PostgresSource(database.dsn)
    (schema,) = source.catalogue([C])
    theirs = dict(
        database.run(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = 'c'::regclass AND attnum > 0"
        )
    )
    assert {column.name: column.native for column in schema.columns} == theirs
    key = Key.of(["aB", "cD", "a", "a", "a"])
    try:
        assert source.lookup(schema, [key], ["g"], ()) == {key: {"g": 1}}
    finally:
        source.close()


def test_an_event_trigger_finds_its_names_in_a_statement_of_ours(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE ddl_log (tag text)",
        "CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO ddl_log VALUES (tg_tag); END $$",
        "CREATE EVENT TRIGGER watch_all ON ddl_command_end EXECUTE FUNCTION watch()",
    )
    source = PostgresSource(database.dsn)
    capture = Capture("shared", tuple(source.catalogue([T])), "placeholder", "password")
    assert [one for one in source.preflight([T]) if one.code == "SOURCE_EVENT_TRIGGER"] == []
    source.setup(capture)
    source.teardown(capture)
    assert database.value("SELECT count(*) FROM ddl_log WHERE tag LIKE '%PUBLICATION'") == 2
