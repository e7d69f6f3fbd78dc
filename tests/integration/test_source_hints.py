"""What `source check` tells to run is run, with names that are no plain words; then nothing is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from connectors.postgres import PostgresSource
from connectors.postgres.session import quoted
from connectors.postgres.way_in import way_in
from headrace.model.errors import SourceError
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server
from tests.support.waiting import until

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
    database.paste(finding.hint.split("\n")[0].partition("  --")[0])


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


def test_what_helps_when_a_server_lets_nobody_in(database: Database) -> None:
    """Each has its own way; a password is spoken of where one was refused, and nowhere else."""
    server = Database(urlunsplit(urlsplit(database.dsn)._replace(path="/postgres")))
    weak = database.dsn.replace("postgres@", f"{quote(ROLE)}@", 1)
    name, role = quoted("hin ts"), quoted(ROLE)

    def hint(dsn: str) -> str:
        try:
            PostgresSource(dsn, "a wrong one").tables(["nowhere"])
        except SourceError as error:
            return f"{error.code}: {error.hint}"
        return ""

    def told(dsn: str) -> str:
        found = hint(dsn)
        assert "password" not in found
        return found.removeprefix("SOURCE_UNREACHABLE: ")

    for taken, mended in (
        (f"REVOKE CONNECT ON DATABASE {name} FROM PUBLIC", f"GRANT CONNECT ON DATABASE {name} TO {role};"),
        (f"ALTER ROLE {role} NOLOGIN", f"ALTER ROLE {role} LOGIN;"),
        (f"ALTER DATABASE {name} ALLOW_CONNECTIONS false", f"ALTER DATABASE {name} ALLOW_CONNECTIONS true;"),
    ):
        server.run(taken)
        assert told(weak) == mended
        server.run(mended)
        assert hint(weak) == ""
    assert "user's name" in told(database.dsn.replace("postgres@", "nobody@", 1))
    assert "Wait" in way_in("FATAL:  the database system is not yet accepting connections", None)
    assert "password" not in way_in("FATAL:  désolé, trop de clients sont déjà connectés", None)

    rules = Path(server.value("SHOW hba_file"))
    trusting = rules.read_text()
    for method, word in (("reject", "pg_hba.conf"), ("scram-sha-256", "user and password")):
        rules.write_text(f"host all {role} all {method}\n{trusting}")
        server.run("SELECT pg_reload_conf()")
        until(lambda word=word: word in hint(weak))  # type: ignore[misc]
