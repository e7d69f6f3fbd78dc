"""What others have built upon our tables, or keep in our schema, keeps us from removing only that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.base import Capture, Left
from connectors.postgres import PostgresSource
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import MAJORS, postgres_server

pytestmark = pytest.mark.stack

T = TableId("public", "t")
CODE = "SOURCE_OBJECT_USED"
BEAT, SIGNAL = "headrace.built_heartbeat", "headrace.built_signal"
SLOT = "SELECT pg_create_logical_replication_slot('headrace_built', 'pgoutput')"
VIEW = f"CREATE VIEW {{}}.beat AS SELECT at FROM {BEAT}"
OF_ROWS = f"CREATE FUNCTION {{}}.f(b {BEAT}) RETURNS text LANGUAGE sql AS 'SELECT 1::text'"
PLAIN = "CREATE TABLE {}.z (id int, v text)"
BUILT: dict[str, tuple[str, ...]] = {
    "a view": (VIEW,),
    "a view upon a view": (VIEW, 'CREATE VIEW {0}."late on b""eat" AS SELECT at FROM {0}.beat'),
    "a view of both": (f"CREATE VIEW {{}}.v AS SELECT id FROM {SIGNAL} UNION SELECT id::text FROM {BEAT}",),
    "a materialized view": (f"CREATE MATERIALIZED VIEW {{}}.m AS SELECT * FROM {SIGNAL}",),
    "a function of rows": (OF_ROWS,),
    "a function with a body": (
        f"CREATE FUNCTION {{}}.g() RETURNS timestamptz BEGIN ATOMIC SELECT max(at) FROM {BEAT}; END",
    ),
    "a foreign key": (f'CREATE TABLE {{}}.x (b smallint CONSTRAINT "of on" REFERENCES {BEAT})',),
    "a child": (f"CREATE TABLE {{}}.kid () INHERITS ({BEAT})",),
    "a column": (f"CREATE TABLE {{}}.y (id int, b {BEAT}[])", "CREATE VIEW {0}.of_y AS SELECT b FROM {0}.y"),
    "an attribute": (f"CREATE TYPE {{}}.pair AS (id int, b {BEAT})",),
    "a default": (OF_ROWS, f"CREATE TABLE {{0}}.w (v text DEFAULT {{0}}.f(NULL::{BEAT}))"),
    "a check": (OF_ROWS, f"CREATE TABLE {{0}}.w (v text CHECK (v <> {{0}}.f(NULL::{BEAT})))"),
    "a cast": (OF_ROWS, f"CREATE CAST ({BEAT} AS text) WITH FUNCTION {{}}.f({BEAT})"),
    "a domain": (f"CREATE DOMAIN {{}}.d AS {BEAT}",),
    "a rule": (PLAIN, f"CREATE RULE r AS ON UPDATE TO {{}}.z DO ALSO DELETE FROM {SIGNAL}"),
    "a policy": (PLAIN, f"CREATE POLICY p ON {{}}.z USING (EXISTS (SELECT FROM {BEAT} WHERE id = 1))"),
}
UPON_ITSELF = (
    VIEW.format("ops"),
    "CREATE FUNCTION ops.same(b ops.beat) RETURNS timestamptz LANGUAGE sql AS 'SELECT $1.at'",
    f"CREATE OR REPLACE VIEW ops.beat AS SELECT at, ops.same(NULL) AS same FROM {BEAT}",
)
OF_OURS = (
    f"CREATE INDEX ON {BEAT} (at)",
    f"CREATE STATISTICS ops.s ON id, at FROM {BEAT}",
    f"CREATE POLICY p ON {BEAT} USING (id = 1)",
    f"ALTER TABLE {BEAT} ADD CONSTRAINT one CHECK (id >= 0)",
    "CREATE FUNCTION ops.t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    f"CREATE TRIGGER t BEFORE UPDATE ON {BEAT} FOR EACH ROW WHEN (NEW.id > 1) EXECUTE FUNCTION ops.t()",
    f"CREATE RULE r AS ON DELETE TO {SIGNAL} WHERE OLD.id = 'x' DO INSTEAD NOTHING",
    f"CREATE PUBLICATION theirs FOR TABLE {BEAT}",
)
KEPT = (
    ("FUNCTION headrace.f()", " RETURNS int LANGUAGE sql AS 'SELECT 1'"),
    ("TYPE headrace.mood", " AS ENUM ('a')"),
    ("DOMAIN headrace.d", " AS int"),
    ("VIEW headrace.v", " AS SELECT 1 AS one"),
    ("TEXT SEARCH CONFIGURATION headrace.c", " (COPY = pg_catalog.simple)"),
)


@pytest.fixture(
    scope="module",
    params=[pytest.param(major, marks=[] if major == 18 else [pytest.mark.deep]) for major in MAJORS],
)
def server(request: pytest.FixtureRequest) -> Iterator[Database]:
    with postgres_server(request.param) as dsn:
        yield Database(dsn)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "built") as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE SCHEMA ops")
        yield made


def added(database: Database) -> tuple[PostgresSource, Capture]:
    source = PostgresSource(database.dsn)
    capture = Capture("built", tuple(source.catalogue([T])), "placeholder", "password")
    source.setup(capture)
    database.run(SLOT)
    return source, capture


def told(source: PostgresSource, capture: Capture) -> list[Finding]:
    return [one for one in source.check_anew(capture) if one.severity is not Severity.OK]


def ours(database: Database) -> tuple[int, int, int]:
    """Return how many slots, publications and schemas of ours there are."""
    counted = database.run(
        "SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = 'built'),"
        " (SELECT count(*) FROM pg_publication WHERE pubname = 'headrace_built'),"
        " (SELECT count(*) FROM pg_namespace WHERE nspname = 'headrace')"
    )
    slots, publications, schemas = counted[0]
    return slots, publications, schemas


def build(database: Database) -> None:
    """Build all of it, each kind in a schema of its own."""
    for what, statements in BUILT.items():
        schema = f'"{what}"'
        database.run(f"CREATE SCHEMA {schema}", *(statement.format(schema) for statement in statements))


def test_what_is_built_upon_our_tables_keeps_only_them(database: Database) -> None:
    source, capture = added(database)
    build(database)
    left = source.teardown(capture)
    assert ours(database) == (0, 0, 1)
    assert not left.slot
    assert "depend" in left.why
    database.run(*left.statements)
    assert source.teardown(capture) == Left()
    assert ours(database) == (0, 0, 0)


def test_what_is_built_upon_our_tables_is_told_before(database: Database) -> None:
    source, capture = added(database)
    assert told(source, capture) == []
    build(database)
    (found,) = told(source, capture)
    assert (found.code, found.severity) == (CODE, Severity.ERROR)
    assert [what for what in BUILT if what not in found.message] == []
    database.run(found.hint)
    assert told(source, capture) == []
    assert source.teardown(capture) == Left()


def test_a_view_that_has_become_one_upon_itself_is_told(database: Database) -> None:
    source, capture = added(database)
    database.run(*UPON_ITSELF)
    (found,) = told(source, capture)
    assert "view ops.beat" in found.message


def test_what_goes_with_our_tables_is_not_told(database: Database) -> None:
    source, capture = added(database)
    database.run(*OF_OURS)
    assert told(source, capture) == []
    assert source.teardown(capture) == Left()
    assert ours(database) == (0, 0, 0)


def test_our_schema_stays_for_what_others_keep_in_it(database: Database) -> None:
    source, capture = added(database)
    database.run(*(f"CREATE {kept}{definition}" for kept, definition in KEPT))
    assert told(source, capture) == []
    for kept, _ in KEPT:
        assert source.teardown(capture) == Left()
        assert ours(database) == (0, 0, 1), kept
        database.run(f"DROP {kept}")
    assert source.teardown(capture) == Left()
    assert ours(database) == (0, 0, 0)
