"""Names of which Connect cuts blanks off, or that the connector leaves out: refused by the check."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from connectors.postgres import PostgresSource
from connectors.postgres.session import quoted
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with postgres_server(18) as dsn, fresh_database(dsn, "blanks") as made:
        yield made


def refused(dsn: str, *tables: TableId) -> dict[str, str]:
    found = PostgresSource(dsn).preflight(tables)
    return {one.code: one.hint for one in found if one.severity is Severity.ERROR}


QUOTED = [("s", 'a"b'), ('a"b', "t"), ("s", "it''s"), ("``", "t")]


@pytest.mark.parametrize(("schema", "name"), [(" ", "t"), ("s", " "), ("s", "\n"), ("  ", "\x1f"), *QUOTED])
def test_a_table_or_a_schema_that_the_connector_cannot_take(
    database: Database, schema: str, name: str
) -> None:
    """Rows of one called by blanks alone would go to a topic of another name, and the store stay empty.

    Of one with two equal quotes in a row the connector would read the rows, and tell no change.
    """
    table = TableId(schema, name)
    database.run(f"CREATE SCHEMA {quoted(schema)}", f"CREATE TABLE {table.quoted} (id int PRIMARY KEY)")
    while hint := refused(database.dsn, table).get("SOURCE_TABLE_NAME"):
        assert hint.count("…") == 1
        database.run(hint.replace("…", "given"))
        table = TableId("given", table.name) if "SCHEMA" in hint else TableId(table.schema, "given")
    assert table.quoted != TableId(schema, name).quoted
    database.run(f"DROP SCHEMA {quoted(table.schema)} CASCADE")


def test_a_table_whose_name_only_begins_or_ends_with_blanks_or_quotes_is_taken(database: Database) -> None:
    table = TableId("s ", " `it's t`")
    database.run('CREATE SCHEMA "s "', f"CREATE TABLE {table.quoted} (id int PRIMARY KEY)")
    assert refused(database.dsn, table) == {}


@pytest.mark.parametrize(
    ("role", "password"), [(" r", "p"), ("r\t", "p"), ("r'b", "p"), ("r", " p"), ("r", "p\n"), ("r b", "p b")]
)
def test_a_role_or_a_password_of_which_blanks_are_cut_off(
    database: Database, role: str, password: str
) -> None:
    database.run(
        f"CREATE ROLE {quoted(role)} SUPERUSER LOGIN PASSWORD '{password}'",
        "CREATE TABLE t (id int PRIMARY KEY)",
    )
    place = database.dsn.rpartition("@")[2]
    login = f"postgresql://{quote(role, safe='')}:{quote(password, safe='')}@{place}"
    try:
        whole = (role.replace("'", " ", 1).strip(), password.strip()) == (role, password)
        found = refused(login, TableId("public", "t"))
        assert found.keys() == (set() if whole else {"SOURCE_URL_INVALID"})
        if role not in ("r", "r b"):
            database.run(found["SOURCE_URL_INVALID"].partition("  --")[0].replace("…", "given"))
            role = "given"
            assert refused(f"postgresql://given:{password}@{place}", TableId("public", "t")) == {}
    finally:
        database.run("DROP TABLE t", f"DROP ROLE {quoted(role)}")
