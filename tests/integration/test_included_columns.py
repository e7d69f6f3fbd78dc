"""Columns that an index only includes are none of its key: of a row that is gone the log lacks them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.base import Capture, Columns, Keys
from connectors.postgres import PostgresSource
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server

pytestmark = pytest.mark.stack

T = TableId("public", "t")
BY_CODE = "CREATE UNIQUE INDEX u ON {} (code) INCLUDE (id)"
BY_INDEX = "ALTER TABLE {} REPLICA IDENTITY USING INDEX u"
PLAIN = "CREATE TABLE t (id int {}, code text NOT NULL, v text)"
LEAF = "CREATE TABLE t_a PARTITION OF t FOR VALUES FROM (0) TO (100)"
LACKING = {
    "of the table": (PLAIN.format("PRIMARY KEY"), BY_CODE.format("t"), BY_INDEX.format("t")),
    "of a declared key": (PLAIN.format("NOT NULL UNIQUE"), BY_CODE.format("t"), BY_INDEX.format("t")),
    "of a partition": (
        f"{PLAIN.format('PRIMARY KEY')} PARTITION BY RANGE (id)",
        LEAF,
        BY_CODE.format("t_a"),
        BY_INDEX.format("t_a"),
    ),
    "of a declared key that the primary key includes": (
        "CREATE TABLE t (id int NOT NULL UNIQUE, code text, v text, PRIMARY KEY (code) INCLUDE (id))",
    ),
}
FIT: dict[str, tuple[str, str]] = {
    "a type that is not delivered": ("at point", "'(1,2)'"),
    "one that is left out": ("secret text", "'s'"),
    "a generated one": ("twice int GENERATED ALWAYS AS (id * 2) STORED", "DEFAULT"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres_server(18) as dsn:
        yield Database(dsn)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "included") as made:
        yield made


def errors(source: PostgresSource, keys: Keys | None = None) -> list[Finding]:
    return [one for one in source.preflight([T], keys) if one.severity is Severity.ERROR]


@pytest.mark.parametrize("of", LACKING)
def test_an_identity_that_only_includes_the_key_is_refused_until_it_has_it(
    database: Database, of: str
) -> None:
    database.run(*LACKING[of])
    source, keys = PostgresSource(database.dsn), {T: ("id",)} if "declared" in of else None
    (found,) = errors(source, keys)
    assert found.code in ("SOURCE_IDENTITY_INDEX", "SOURCE_IDENTITY_DEFAULT")
    database.run(*found.hint.split("; "))
    assert errors(source, keys) == []


@pytest.mark.parametrize("which", FIT)
def test_a_column_that_the_primary_key_only_includes_is_like_any_other(
    database: Database, which: str
) -> None:
    """Its table is fit, it may be left out, and nothing that comes later takes the table out of sight."""
    column, value = FIT[which]
    name = column.partition(" ")[0]
    leave_out: Columns = {T: (name,)} if name == "secret" else {}
    database.run(f"CREATE TABLE t (id int, v text, {column}, PRIMARY KEY (id) INCLUDE ({name}))")
    source = PostgresSource(database.dsn, leave_out=leave_out)
    assert errors(source) == []
    capture = Capture("included", tuple(source.catalogue([T])), "placeholder", "password")
    assert capture.tables[0].key == ("id",)
    source.setup(capture)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        for _ in range(2):
            assert watch.look(facts).troubles == ()
        assert source.hold(capture).uncaptured == ()
        database.run(f"INSERT INTO t VALUES (1, 'a', {value})", "UPDATE t SET v = 'b'", "DELETE FROM t")
    finally:
        watch.close()
        source.teardown(capture)


def test_an_identity_that_comes_to_include_the_key_is_told_until_it_has_it(database: Database) -> None:
    database.run(PLAIN.format("PRIMARY KEY"), BY_CODE.format("t"))
    source = PostgresSource(database.dsn)
    capture = Capture("included", tuple(source.catalogue([T])), "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        database.run(BY_INDEX.format("t"))
        (told,) = [one for one in watch.look(facts).troubles if one.lasts]
        assert told.code == "IDENTITY_WEAK"
        database.run(told.statement)
        assert [one for one in watch.look(facts).troubles if one.lasts] == []
    finally:
        watch.close()
        source.teardown(capture)


def test_an_index_over_what_the_key_includes_guards_no_partition(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int, v int NOT NULL, PRIMARY KEY (id) INCLUDE (v)) PARTITION BY RANGE (id)",
        "CREATE TABLE t_a (id int, v int NOT NULL, PRIMARY KEY (id) INCLUDE (v) DEFERRABLE)",
        "CREATE UNIQUE INDEX ON t_a (id, v)",
        "ALTER TABLE t_a REPLICA IDENTITY FULL",
        "ALTER TABLE t ATTACH PARTITION t_a FOR VALUES FROM (0) TO (100)",
    )
    source = PostgresSource(database.dsn)
    (found,) = errors(source)
    assert found.code == "SOURCE_KEY_DEFERRABLE"
    database.run(*found.hint.split("; "))
    assert errors(source) == []


def test_a_primary_key_is_advised_over_what_tells_rows_apart(database: Database) -> None:
    database.run("CREATE TABLE t (id int NOT NULL, v text)", "CREATE UNIQUE INDEX ON t (id) INCLUDE (v)")
    source = PostgresSource(database.dsn)
    (found,) = errors(source)
    assert found.code == "SOURCE_NO_PRIMARY_KEY"
    database.run(found.hint.partition("  --")[0])
    assert [schema.key for schema in source.catalogue([T])] == [("id",)]
