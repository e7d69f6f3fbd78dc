"""Values that the connector cannot deliver are looked for before a table is captured."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from threading import Thread

import psycopg
import pytest
from psycopg import sql

from connectors.postgres import PostgresSource, glance, lookup
from connectors.postgres.address import parameters
from connectors.postgres.glance import Glances, Unanswered
from connectors.postgres.session import connect
from headrace.model.errors import SourceError
from headrace.model.finding import Severity
from headrace.model.key import Key
from headrace.model.schema import LogicalType, TableId, TableSchema
from headrace.model.values import key_of
from tests.golden.meaning import expected
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack
from tests.support.waiting import ended, until

pytestmark = pytest.mark.stack

XIDS = 1 << 32
"""The log tells the lower half of a transaction's id."""


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "source_values") as database:
        yield database


@pytest.fixture
def source(database: Database) -> Iterator[PostgresSource]:
    with closing(PostgresSource(database.dsn)) as source:
        yield source


@pytest.mark.parametrize(
    ("native", "literal"),
    [
        ("date", "'0044-03-15 BC'"),
        ("date", "'1582-10-10'"),
        ("born", "'0044-03-15 BC'"),
        ("date[]", "'{1582-10-10}'"),
        ("timestamp[]", "'{2024-02-29 00:00:00,NULL,1500-01-01 00:00:00}'"),
        ("timestamptz[]", "'{\"0044-03-15 12:00:00+00 BC\"}'"),
        ("int[]", "'{{1,2},{3,4}}'"),
    ],
)
def test_a_value_that_would_arrive_as_another_is_found_before(
    database: Database, native: str, literal: str
) -> None:
    database.run(
        "CREATE DOMAIN born AS date",
        f'CREATE TABLE t (a int PRIMARY KEY, "the Value" {native})',
        "ALTER TABLE t REPLICA IDENTITY FULL",
    )
    table = TableId("public", "t")
    errors = [f for f in PostgresSource(database.dsn).preflight([table]) if f.severity is Severity.ERROR]
    assert errors == []
    database.run(f"INSERT INTO t VALUES (1, NULL), (2, {literal})")
    (error,) = [f for f in PostgresSource(database.dsn).preflight([table]) if f.severity is Severity.ERROR]
    assert error.code == "SOURCE_VALUES"
    assert "the Value" in error.message
    statement, _, mend = error.hint.partition("  -- ")
    assert database.run(f"SELECT a FROM ({statement}) AS seen") == [(2,)]
    assert "leave out" in mend
    left = PostgresSource(database.dsn, leave_out={table: ("the Value",)})
    assert [f for f in left.preflight([table]) if f.severity is Severity.ERROR] == []


def test_a_domain_over_an_array_is_captured_only_where_the_log_has_the_old_row(database: Database) -> None:
    database.run(
        "CREATE DOMAIN tags AS text[]",
        "CREATE DOMAIN paths AS text",
        "CREATE DOMAIN spans AS interval[]",
        "CREATE TABLE t (a int PRIMARY KEY, mine tags, path paths, plain text[], never spans)",
    )
    source, table = PostgresSource(database.dsn), TableId("public", "t")
    (schema,) = source.catalogue([table])
    assert set(schema.by_name) == {"a", "path", "plain"}
    assert {f.code for f in source.preflight([table]) if "mine" in f.message} == {"SOURCE_COLUMN_UNCHANGED"}
    database.run("ALTER TABLE t REPLICA IDENTITY FULL")
    (schema,) = source.catalogue([table])
    assert set(schema.by_name) == {"a", "mine", "path", "plain"}


KEYS = {
    "date": ("'0044-03-15 BC'", "'0001-01-01 BC'", "'10000-01-01'", "'infinity'"),
    "timestamp": ("'0044-03-15 12:00:00.5 BC'", "'294276-12-31 23:59:59'", "'-infinity'"),
    "timestamptz": ("'2024-02-29 12:34:56.789012+02'",),
    "bytea": ("'\\x00ff'", "''"),
    "numeric": ("1.10", "'NaN'", "-1e30"),
    "double precision": ("0.1", "'-Infinity'", "1e300"),
    "boolean": ("true", "false"),
    "time": ("'24:00:00'", "'12:34:56.789012'"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
    "character(5)": ("'a'",),
    "text": ("''", "'a:b %''\"'"),
}


@pytest.mark.parametrize("native", KEYS)
def test_a_row_is_looked_up_by_a_key_of_any_type(
    database: Database, source: PostgresSource, native: str
) -> None:
    values = ", ".join(f"({literal}, '{{NaN}}', '0')" for literal in KEYS[native])
    database.run(
        f"CREATE TABLE t (k {native} PRIMARY KEY, n numeric[], i interval)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        f"INSERT INTO t VALUES {values}",
    )
    (schema,) = source.catalogue([TableId("public", "t")])
    texts = [str(row["k"]) for row in source.select("SELECT k::text AS k FROM t")]
    column = schema.by_name["k"]
    if column.type is LogicalType.BOOLEAN:
        texts = [text[0] for text in texts]
    keys = [key_of(schema, {"k": expected(column, text)}) for text in texts]
    found = source.lookup(schema, keys, ["n", "i"], ())
    assert len(keys) == len(KEYS[native])
    assert found == {key: {"n": ["NaN"], "i": None} for key in keys}


def test_values_that_a_lake_cannot_hold_are_counted(database: Database) -> None:
    database.run(
        "CREATE DOMAIN some_day AS date",
        "CREATE DOMAIN end_of AS some_day",
        "CREATE TABLE t (a int PRIMARY KEY, until end_of, at timestamptz, ats timestamp[], "
        "price numeric(5,2), free numeric, prices numeric(5,2)[])",
        "INSERT INTO t VALUES (1, 'infinity', '-infinity', '{now, infinity}', 'NaN', 'NaN', '{1,NaN}'),"
        " (2, 'infinity', now(), '{}', 1.5, 'Infinity', NULL)",
        "INSERT INTO t (a) VALUES (3)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
    )
    found = [
        finding
        for finding in PostgresSource(database.dsn).preflight([TableId("public", "t")])
        if finding.code == "SOURCE_VALUES_UNHELD"
    ]
    assert {finding.severity for finding in found} == {Severity.WARNING}
    told = [finding.message.partition(".")[2].partition(".")[0] for finding in found]
    assert told == [
        "t: 2 values are infinite in column until",
        "t: 1 value is infinite in column at",
        "t: 1 value is infinite in column ats",
        "t: 1 value is NaN in column price",
        "t: 1 value is NaN in column prices",
    ]
    assert "--set unheld.public.t.until=null" in found[0].hint


@pytest.fixture
def told(database: Database, source: PostgresSource) -> tuple[TableSchema, Key]:
    """Return a table that has one row, and its key."""
    database.run(
        "CREATE TABLE t (k int PRIMARY KEY, n numeric[])",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, '{NaN}')",
    )
    (schema,) = source.catalogue([TableId("public", "t")])
    return schema, key_of(schema, {"k": 1})


def test_a_row_whose_change_cannot_be_seen_yet_is_not_looked_up(
    database: Database, source: PostgresSource, told: tuple[TableSchema, Key]
) -> None:
    """A commit that waits for a standby is in the log already."""
    schema, key = told
    with psycopg.connect(database.dsn) as application:
        application.execute("UPDATE t SET n = '{Infinity}' WHERE k = 1")
        (row,) = application.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
        with pytest.raises(SourceError) as caught:
            source.lookup(schema, [key], ["n"], {row[0] % XIDS})
        assert caught.value.code == "SOURCE_LOOKUP"
        application.commit()
    assert source.lookup(schema, [key], ["n"], {row[0] % XIDS}) == {key: {"n": ["Infinity"]}}
    with pytest.raises(SourceError):
        source.lookup(schema, [key], ["n"], {(row[0] + 1_000) % XIDS})


@pytest.mark.parametrize("age", [1_000, 1 << 31, (1 << 31) + 1_000, XIDS - (1 << 25)])
def test_a_row_whose_change_is_long_ago_is_looked_up(
    database: Database, source: PostgresSource, told: tuple[TableSchema, Key], age: int
) -> None:
    """A topic that is read anew tells transactions of any age, by the lower half of their ids."""
    schema, key = told
    latest = database.value("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    assert source.lookup(schema, [key], ["n"], {(latest - age) % XIDS}) == {key: {"n": ["NaN"]}}


def refuse(source: PostgresSource, told: tuple[TableSchema, Key]) -> None:
    """Look up what the database does not answer."""
    schema, key = told
    with pytest.raises(SourceError) as caught:
        source.lookup(schema, [key], ["n"], ())
    assert caught.value.code == "SOURCE_LOOKUP"


def test_a_lookup_does_not_wait_for_who_alters_the_table(
    database: Database, source: PostgresSource, told: tuple[TableSchema, Key]
) -> None:
    with psycopg.connect(database.dsn) as other:
        other.execute("LOCK TABLE t")
        refuse(source, told)


def test_a_lookup_gives_up_a_server_that_says_nothing(
    database: Database, source: PostgresSource, told: tuple[TableSchema, Key]
) -> None:
    """The kernel answers for a process that hangs, so the connection looks well."""
    schema, key = told
    source.lookup(schema, [key], ["n"], ())
    mine = "application_name = 'headrace-lookup' AND datname = current_database()"
    pid = database.value(f"SELECT pid FROM pg_stat_activity WHERE {mine}")
    os.kill(pid, signal.SIGSTOP)
    try:
        refuse(source, told)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert source.lookup(schema, [key], ["n"], ()) == {key: {"n": ["NaN"]}}


def test_a_database_that_lets_nobody_in_is_not_waited_for_by_each_table(
    told: tuple[TableSchema, Key], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def asked() -> int:
            """Return how many connections were opened since the last look."""
            number = 0
            while select.select([silent], [], [], 0)[0]:
                silent.accept()[0].close()
                number += 1
            return number

        dsn = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/d?connect_timeout=60"
        for rest, again in ((3_600.0, 0), (0.0, 1)):
            monkeypatch.setattr(lookup, "_NOT_AGAIN_S", rest)
            with closing(PostgresSource(dsn)) as source:
                refuse(source, told)
                assert asked() == 1
                refuse(source, told)
                assert asked() == again


def test_a_long_look_at_a_table_gives_way_to_a_statement_that_waits_for_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have gone on for longer than the test waits, and everybody behind the statement with it."""
    monkeypatch.setattr(glance, "_PATIENCE_S", 4 * WAIT_S)
    database.run("CREATE TABLE looked_at (a int PRIMARY KEY)", "INSERT INTO looked_at VALUES (1)")
    looks = sql.SQL("SELECT max(a), pg_sleep({}) FROM public.looked_at").format(4 * WAIT_S)
    counts = sql.Composed([sql.SQL("SELECT count(*) AS n FROM public.looked_at")])
    answers: list[object] = []
    with connect(parameters(database.dsn)) as connection:
        looking = Thread(target=lambda: answers.append(Glances(connection).ask(looks)), daemon=True)
        looking.start()
        until(lambda: database.run("SELECT 1 FROM pg_locks WHERE relation = 'looked_at'::regclass"))
        database.run("ALTER TABLE looked_at ADD COLUMN b int")
        ended(looking)
        assert Glances(connection).ask(counts) == {"n": 1}
    (told,) = answers
    assert isinstance(told, Unanswered)
    assert told.late
