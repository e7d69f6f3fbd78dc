"""What `source check` tells to run is run, with names that are no plain words; then nothing is refused."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from connectors.postgres import PostgresSource
from connectors.postgres.session import quoted
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server

pytestmark = pytest.mark.stack

ROLE, OWNER, SCHEMA = 'we"ak role', 'the "owner"', 'od"d schema'
TABLES = {
    "plain t": "CREATE TABLE {} (id int PRIMARY KEY)",
    'quo"ted t': "CREATE TABLE {} (id int PRIMARY KEY)",
    "secured t": "CREATE TABLE {0} (id int PRIMARY KEY); ALTER TABLE {0} FORCE ROW LEVEL SECURITY;"
    " ALTER TABLE {0} ENABLE ROW LEVEL SECURITY",
    "keyless t": 'CREATE TABLE {0} (id int, "Row_id" int)',
    "candidate t": 'CREATE TABLE {0} ("a ""b" int NOT NULL UNIQUE)',
    "unlogged t": "CREATE UNLOGGED TABLE {0} (id int PRIMARY KEY)",
    "loose t": "CREATE TABLE {0} (id int PRIMARY KEY) PARTITION BY RANGE (id);"
    ' CREATE UNLOGGED TABLE "loose ""leaf" PARTITION OF {0} DEFAULT',
    "nothing t": "CREATE TABLE {0} (id int PRIMARY KEY); ALTER TABLE {0} REPLICA IDENTITY NOTHING",
    "cased t": 'CREATE TABLE {0} (id int PRIMARY KEY, "Ä" int, "ä" int)',
    "generated t": "CREATE TABLE {0} (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id) STORED);"
    " ALTER TABLE {0} REPLICA IDENTITY FULL",
    "base t": 'CREATE TABLE {0} (id int PRIMARY KEY); CREATE TABLE "heir ""t" () INHERITS ({0})',
    "parted t": "CREATE TABLE {0} (id int PRIMARY KEY, a numeric[]) PARTITION BY RANGE (id);"
    ' CREATE TABLE "leaf ""t" PARTITION OF {0} DEFAULT; ALTER TABLE "leaf ""t" REPLICA IDENTITY NOTHING',
}


@pytest.fixture
def database() -> Iterator[Database]:
    with postgres_server(18) as dsn, fresh_database(dsn, "hin ts") as made:
        made.run(
            f"CREATE ROLE {quoted(ROLE)} LOGIN",
            f"CREATE ROLE {quoted(OWNER)}",
            f"CREATE SCHEMA {quoted(SCHEMA)}",
        )
        for name, ddl in TABLES.items():
            told = TableId(SCHEMA, name).quoted
            made.run(*ddl.replace("{0}", told).replace("{}", told).split("; "))
            made.run(f"ALTER TABLE {told} OWNER TO {quoted(OWNER)}")
        yield made


def run(database: Database, finding: Finding) -> None:
    for statement in finding.hint.split("\n")[0].partition("  --")[0].split("; "):
        database.run(statement)


def test_every_statement_that_is_told_can_be_pasted(database: Database) -> None:
    weak = database.dsn.replace("postgres@", f"{quote(ROLE)}@", 1)
    tables = [TableId(SCHEMA, name) for name in TABLES]
    unmended = {"SOURCE_TABLE_NAME"}
    ran: set[str] = set()
    unlogged: set[TableId | None] = set()
    for _ in range(4):
        found = PostgresSource(weak).preflight(tables)
        unlogged |= {finding.table for finding in found if finding.code == "SOURCE_TABLE_UNLOGGED"}
        for finding in found:
            if finding.hint and finding.severity is not Severity.OK and finding.code not in unmended:
                run(database, finding)
                ran.add(finding.code)
    left = {finding.code for finding in PostgresSource(weak).preflight(tables) if finding.hint}
    assert left <= {"SOURCE_TABLE_REREAD", "SOURCE_TABLE_NAME"}
    assert unlogged == {TableId(SCHEMA, "unlogged t"), TableId(SCHEMA, "loose t")}
    assert ran >= {
        "SOURCE_REPLICATION_RIGHT",
        "SOURCE_CREATE_RIGHT",
        "SOURCE_TABLE_OWNER",
        "SOURCE_SELECT_RIGHT",
        "SOURCE_ROW_SECURITY",
        "SOURCE_NO_PRIMARY_KEY",
        "SOURCE_TABLE_UNLOGGED",
        "SOURCE_IDENTITY_NOTHING",
        "SOURCE_IDENTITY_GENERATED",
        "SOURCE_COLUMN_CASE",
        "SOURCE_COLUMN_UNCHANGED",
        "SOURCE_TABLE_INHERITED",
        "SOURCE_WAL_UNBOUNDED",
    }
