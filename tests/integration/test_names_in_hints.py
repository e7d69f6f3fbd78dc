"""Whatever others call their tables, roles and databases: no part of a name becomes a statement of a hint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

import psycopg
import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from connectors.postgres.session import quoted
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server

pytestmark = pytest.mark.stack

BEHIND = "\nDROP TABLE canary; --"
ROLE, OWNER, TRIGGERS, DATABASE = (f"{name}{BEHIND}" for name in ("r", "o", "e", "d"))
TABLES = {
    f"keyless{BEHIND}": "CREATE TABLE {0} (id int)",
    f"candidate{BEHIND}": "CREATE TABLE {0} (id int NOT NULL UNIQUE)",
    f"base{BEHIND}": "CREATE TABLE {0} (id int PRIMARY KEY);"
    f" CREATE TABLE {quoted('heir' + BEHIND)} () INHERITS ({{0}})",
    f"wide{BEHIND}": "CREATE TABLE {0} (id int PRIMARY KEY, many bool[])",
    f"old{BEHIND}": "CREATE TABLE {0} (id int PRIMARY KEY, day date);"
    " INSERT INTO {0} VALUES (1, '0044-03-15 BC')",
}
NO_STATEMENT = re.compile(r""""(?:[^"]|"")*"|'(?:[^']|'')*'|--[^\n]*""")


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with (
        postgres_server(18, "max_prepared_transactions=1") as dsn,
        fresh_database(dsn, DATABASE) as made,
    ):
        made.run(
            f"CREATE ROLE {quoted(ROLE)} LOGIN REPLICATION",
            f"CREATE ROLE {quoted(OWNER)}",
            f"CREATE ROLE {quoted(TRIGGERS)} SUPERUSER",
            f"GRANT CREATE ON DATABASE {quoted(DATABASE)} TO {quoted(ROLE)}",
        )
        for name, ddl in TABLES.items():
            told = TableId("public", name).quoted
            with psycopg.connect(made.dsn, autocommit=True) as connection:
                connection.execute(ddl.replace("{0}", told).encode())
        yield made


def bare(hint: str) -> str:
    """Return what of a hint is neither quoted nor a comment."""
    return NO_STATEMENT.sub("", hint)


def test_no_name_is_run_by_who_pastes_what_the_check_tells(database: Database) -> None:
    database.run(
        "CREATE PUBLICATION everything FOR ALL TABLES",
        "CREATE OR REPLACE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF current_user LIKE 'r%' THEN RAISE EXCEPTION 'no'; END IF; END $$",
        "CREATE EVENT TRIGGER guard ON ddl_command_start EXECUTE FUNCTION refuse()",
        f"ALTER EVENT TRIGGER guard OWNER TO {quoted(TRIGGERS)}",
    )
    for name in TABLES:
        database.run(f"ALTER TABLE {quoted(name)} OWNER TO {quoted(OWNER)}")
    weak = database.dsn.replace("postgres@", f"{quote(ROLE)}@", 1)
    tables = [TableId("public", name) for name in TABLES]
    with psycopg.connect(database.dsn) as other:
        other.execute(f"INSERT INTO {quoted(next(iter(TABLES)))} VALUES (1)".encode())
        other.execute("PREPARE TRANSACTION 'ours'")
    try:
        waits = PostgresSource(database.dsn).preflight(tables)
        found = [*PostgresSource(weak).preflight(tables), *waits]
    finally:
        database.run("ROLLBACK PREPARED 'ours'", "DROP EVENT TRIGGER guard", "DROP PUBLICATION everything")
    hints = {one.code: one.hint for one in found if "canary" in one.hint}
    assert hints.keys() >= {
        "SOURCE_TABLE_OWNER",
        "SOURCE_NO_PRIMARY_KEY",
        "SOURCE_TABLE_INHERITED",
        "SOURCE_EVENT_TRIGGER",
        "SOURCE_PUBLISHED_ALL",
        "SOURCE_VALUES",
    }
    assert [one.hint for one in found if "canary" in bare(one.hint)] == []


def test_no_name_is_run_by_who_pastes_what_mends_a_replica_identity(database: Database) -> None:
    table = TableId("public", f"wide{BEHIND}")
    source = PostgresSource(database.dsn)
    database.run(f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL")
    capture = Capture("named", tuple(source.catalogue([table])), "placeholder", "password")
    source.setup(capture)
    try:
        database.run(f"ALTER TABLE {table.quoted} REPLICA IDENTITY DEFAULT")
        (weakness,) = source.hold(capture).weakened.values()
        assert "resnapshot" in weakness.remedy
        assert "canary" not in bare(weakness.remedy)
    finally:
        source.teardown(capture)
