"""A first load that would take the locks which all sessions share is told before, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import psycopg
import pytest

from connectors.postgres import PostgresSource
from headrace.control import source_check
from headrace.model.finding import Finding, Severity
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server

pytestmark = [pytest.mark.stack, pytest.mark.deep]

ROOM = 200
FEW = ("max_locks_per_transaction=10", "max_connections=20")
"""So few that few tables take them all."""
PARTED = TableId("public", "parted")


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres_server(18, *FEW) as dsn:
        yield Database(dsn)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "locked") as made:
        yield made


def parted(many: int) -> list[str]:
    """Return what makes a table of so many partitions, each with two indexes."""
    parts = [f"PARTITION OF parted FOR VALUES FROM ({n}) TO ({n + 1})" for n in range(many)]
    return [
        "CREATE TABLE parted (id int PRIMARY KEY, day date) PARTITION BY RANGE (id)",
        "CREATE INDEX ON parted (day)",
        *(f"CREATE TABLE parted_{n} {part}" for n, part in enumerate(parts)),
    ]


def plain(many: int) -> list[str]:
    """Return what makes so many tables, each with three indexes."""
    return [f"CREATE TABLE plain_{n} (id int PRIMARY KEY, a int UNIQUE, b int UNIQUE)" for n in range(many)]


def locks(findings: Sequence[Finding]) -> list[Finding]:
    return [one for one in findings if one.code == "SOURCE_LOCKS"]


@pytest.mark.parametrize(
    ("made", "many", "severity"),
    [
        (plain(12), 48, None),
        (plain(13), 52, Severity.WARNING),
        (plain(24), 96, Severity.WARNING),
        (plain(25), 100, Severity.ERROR),
        (parted(15), 48, None),
        (parted(16), 51, Severity.WARNING),
        (parted(33), 102, Severity.ERROR),
    ],
    ids=lambda value: value if isinstance(value, int) else "",
)
def test_a_first_load_that_would_take_the_locks_of_all(
    database: Database, made: list[str], many: int, severity: Severity | None
) -> None:
    """A fourth of them is told, a half is refused; what is told is counted as Postgres counts."""
    database.run(*made)
    names = [name for (name,) in database.run("SELECT relname FROM pg_class WHERE relkind IN ('r', 'p')"
             " AND relnamespace = 'public'::regnamespace AND NOT relispartition")]  # fmt: skip
    found = locks(source_check.check(database.dsn))
    assert [one.severity for one in found] == ([severity] if severity else [])
    with psycopg.connect(database.dsn) as reader:
        for name in names:
            reader.execute(f"SELECT * FROM {name}".encode())
        held = Database(database.dsn).value(
            f"SELECT count(*) FROM pg_locks WHERE pid = {reader.info.backend_pid} AND relation IS NOT NULL"
        )
    assert many - 2 <= held <= many, "but for the two indexes of a root, which have no rows"
    assert all(f" {many} locks" in one.message and f"about {ROOM}," in one.message for one in found)


def test_tables_that_runs_read_are_counted_one_by_one(database: Database) -> None:
    database.run(*plain(25))
    source = PostgresSource(database.dsn)
    tables = source.tables(["public"])
    assert [one.severity for one in locks(source.preflight(tables, by_run_mib=512))] == [Severity.ERROR]
    assert locks(source.preflight(tables, by_run_mib=0)) == []
    assert locks(source.preflight(tables)) == []


def test_a_table_that_takes_too_many_alone_is_left_unread(database: Database) -> None:
    """A run would read it by its root as well; and so would the look at its values."""
    database.run(
        *parted(40), "INSERT INTO parted VALUES (1, '0044-03-15 BC')", "CREATE TABLE t (id int PRIMARY KEY)"
    )
    source = PostgresSource(database.dsn)
    for mib in (0, None):
        found = source.preflight([PARTED, TableId("public", "t")], by_run_mib=mib)
        (one,) = locks(found)
        assert (one.severity, one.table) == (Severity.ERROR, PARTED)
        assert "SOURCE_VALUES" not in {other.code for other in found}


def test_more_partitions_than_there_are_locks_have_a_size(database: Database) -> None:
    database.run(
        "CREATE TABLE parted (id int) PARTITION BY RANGE (id)",
        "DO $$ BEGIN FOR n IN 1..1600 LOOP EXECUTE format("
        "'CREATE TABLE parted_%s PARTITION OF parted FOR VALUES FROM (%s) TO (%s)', n, n, n + 1);"
        " COMMIT; END LOOP; END $$",
        "INSERT INTO parted_7 VALUES (7)",
    )
    with pytest.raises(psycopg.errors.OutOfMemory):
        database.run("SELECT count(*) FROM parted")
    schema = TableSchema(PARTED, (Column("id", LogicalType.INT32),), ("id",))
    source = PostgresSource(database.dsn)
    assert source.large([schema], 0) == (PARTED,)
    assert source.large([schema], 1) == ()


def test_the_locks_that_are_told_are_enough() -> None:
    """The statement is run, and the server started anew with what it sets."""
    with postgres_server(18, *FEW) as dsn:
        database = Database(dsn)
        database.run(*parted(40))
        (found,) = locks(source_check.check(dsn))
        statement, _, then = found.hint.partition("  -- ")
        assert then == "then restart Postgres"
        database.run(statement)
        assert database.value("SELECT setting FROM pg_file_settings WHERE name ~ 'locks_per'")
    wanted = re.findall(r"max_locks_per_transaction = \d+", statement)[0].replace(" ", "")
    with postgres_server(18, FEW[1], wanted) as dsn:
        Database(dsn).run(*parted(40))
        assert not locks(source_check.check(dsn))
