"""Rows that the connector's driver does not take are found before a first load ends at them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from connectors.postgres import PostgresSource, glance, preflight
from connectors.postgres.properties import FETCHED_BYTES
from headrace.control.check_again import check_again
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.registered import lonely, register

pytestmark = pytest.mark.stack

T = TableId("public", "t")
MIB = 1 << 20
ROW = "INSERT INTO t VALUES ({id}, {value})"


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "too_large") as made:
        yield made


@pytest.fixture(autouse=True)
def _no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer for what is looked at than a check has time."""
    monkeypatch.setattr(glance, "_PATIENCE_S", WAIT_S)
    monkeypatch.setattr(preflight, "_GLANCES_S", 4 * WAIT_S)


def told(database: Database, *left_out: str) -> list[Finding]:
    """Return what is said of the table's values."""
    source = PostgresSource(database.dsn, leave_out={T: left_out} if left_out else {})
    return [
        one for one in source.preflight([T]) if one.code in ("SOURCE_VALUE_LARGE", "SOURCE_VALUES_UNSEEN")
    ]


def xs(number: int) -> str:
    return f"repeat('x', {number})"


@pytest.mark.parametrize(
    ("native", "value", "size"),
    [
        ("text", xs(70 * MIB), "70"),
        ("text", xs(FETCHED_BYTES + 1), "64.1"),
        ("shortish", xs(70 * MIB), "70"),
        ("character varying", xs(70 * MIB), "70"),
        ("bytea", f"convert_to({xs(40 * MIB)}, 'UTF8')", "80.1"),
        ("bytea", f"convert_to({xs(FETCHED_BYTES // 2)}, 'UTF8')", "64.1"),
        ("xml", f"('<a>' || {xs(70 * MIB)} || '</a>')::xml", "70.1"),
        ("json", f"to_json({xs(70 * MIB)})", "70.1"),
        ("jsonb", f"to_jsonb({xs(70 * MIB)})", "70.1"),
        ("jsonb", r"""to_jsonb(repeat(E'\x01', 12 << 20))""", "72.1"),
        ("text[]", f"ARRAY[{xs(35 * MIB)}, {xs(35 * MIB)}]", "70.1"),
    ],
)
def test_a_value_that_the_driver_does_not_take_is_told_with_its_size_and_what_helps(
    database: Database, native: str, value: str, size: str
) -> None:
    database.run(
        "CREATE DOMAIN shortish AS text",
        f'CREATE TABLE t (id int PRIMARY KEY, "the Value" {native})',
        "INSERT INTO t SELECT n FROM generate_series(1, 5) n",
        ROW.format(id=7, value=value),
    )
    (error,) = told(database)
    assert (error.severity, error.code, error.table) == (Severity.ERROR, "SOURCE_VALUE_LARGE", T)
    assert f"public.t: a row takes {size} MiB" in error.message
    assert "column the Value." in error.message
    statement, _, mend = error.hint.partition("  -- ")
    assert database.run(statement)[0][0] == 7
    assert mend.endswith("--leave-out 'public.t=the Value'")
    assert told(database, "the Value") == []
    database.run('UPDATE t SET "the Value" = NULL WHERE id = 7')
    assert told(database) == []


def test_what_the_driver_takes_is_no_matter(database: Database) -> None:
    """The bytes count, not those that are kept: of these more are needed than for a row that is too large."""
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text, raw bytea, doc jsonb, tags text[])",
        "INSERT INTO t (id) SELECT n FROM generate_series(1, 5) n",
        "INSERT INTO t SELECT n, words, decode(words, 'hex'), to_jsonb(words), string_to_array(words, '0') "
        "FROM generate_series(6, 105) n,"
        " LATERAL (SELECT string_agg(md5(n || ' ' || m), '') FROM generate_series(1, 600) m) AS w(words)",
        ROW.format(id=106, value=xs(FETCHED_BYTES)),
        f"INSERT INTO t (id, raw) VALUES (107, convert_to({xs(FETCHED_BYTES // 2 - 1)}, 'UTF8'))",
        f"INSERT INTO t (id, doc) VALUES (108, to_jsonb({xs(50 * MIB)}))",
    )
    assert told(database) == []


def test_values_that_are_too_large_together_are_told_with_the_columns_that_have_to_go(
    database: Database,
) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, small text, body text, raw bytea, doc json)",
        "INSERT INTO t SELECT n FROM generate_series(3, 7) n",
        f"INSERT INTO t VALUES (1, {xs(MIB)}, {xs(33 * MIB)}, convert_to({xs(16 * MIB)}, 'UTF8'), NULL)",
        f"INSERT INTO t VALUES (2, {xs(MIB)}, {xs(31 * MIB)}, NULL, to_json({xs(60 * MIB)}))",
    )
    (error,) = told(database)
    assert "a row takes 92.1 MiB" in error.message
    assert "columns doc, body." in error.message
    assert told(database, "doc", "body") == []
    (error,) = told(database, "doc")
    assert "a row takes 66.1 MiB" in error.message
    assert "column body." in error.message


def test_rows_that_are_fetched_together_at_first_are_counted_together(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text)",
        f"INSERT INTO t SELECT n, {xs(17 * MIB)} FROM generate_series(1, 3) n",
    )
    assert told(database) == []
    database.run(ROW.format(id=4, value=xs(17 * MIB)))
    (error,) = told(database)
    assert "its first rows, 4 of which are fetched at once, take 68 MiB" in error.message
    assert "column body." in error.message
    database.run("UPDATE t SET body = NULL WHERE id = 2")
    assert told(database) == []


def test_a_value_in_a_partition_is_found(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int, body text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE one PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE others PARTITION OF t FOR VALUES FROM (10) TO (1000) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF others DEFAULT",
        "INSERT INTO t VALUES (1, 'small'), (500, 'small')",
    )
    assert told(database) == []
    database.run(ROW.format(id=501, value=xs(70 * MIB)))
    (error,) = told(database)
    assert "a row takes 70 MiB" in error.message
    assert database.run(error.hint.partition("  -- ")[0])[0][0] == 501


def test_a_table_without_large_values_is_not_looked_at(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look would wait for the table; what is not seen in time is said."""
    monkeypatch.setattr(glance, "_PATIENCE_S", 0.3)
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text, label varchar(200))",
        "ALTER TABLE t ALTER body SET STORAGE EXTERNAL",
        f"INSERT INTO t VALUES (1, {xs(150_000)}, 'small')",
    )
    for grown, codes in ((0, []), (250_000, ["SOURCE_VALUES_UNSEEN"])):
        database.run(ROW.format(id=2 + grown, value=xs(grown)))
        with psycopg.connect(database.dsn) as other:
            other.execute("LOCK TABLE t")
            found = told(database)
        assert [one.code for one in found] == codes
        assert all("values of body could" in one.message for one in found)


def test_a_table_that_somebody_rewrites_keeps_no_check_waiting_and_may_hold_anything(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "_PATIENCE_S", 0.3)
    database.run("CREATE TABLE t (id int PRIMARY KEY, body text)")
    with psycopg.connect(database.dsn) as other:
        other.execute("TRUNCATE t")
        (found,) = told(database)
    assert (found.code, found.severity) == ("SOURCE_VALUES_UNSEEN", Severity.WARNING)


def test_a_source_that_has_met_such_a_row_later_is_warned_until_it_has_to_be_read_anew(
    database: Database, tmp_path: Path
) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, body text)")
    context = lonely(tmp_path)
    register(context, "shop", database.dsn, T)
    database.run(
        "SELECT pg_create_logical_replication_slot('headrace_shop', 'pgoutput')",
        ROW.format(id=1, value=xs(70 * MIB)),
    )
    for severity in (Severity.WARNING, Severity.ERROR):
        (found,) = [one for one in check_again(context, "shop") if one.code == "SOURCE_VALUE_LARGE"]
        assert found.severity is severity
        if severity is Severity.WARNING:
            database.run("SELECT pg_drop_replication_slot('headrace_shop')")
