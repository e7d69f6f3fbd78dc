"""Money that the application keeps in another unit than hundredths: it is never told as another amount."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.model.finding import Finding
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.locales import write_money
from tests.support.servers import postgres_server

pytestmark = pytest.mark.stack

T = TableId("public", 't"t')
TABLE = (
    "CREATE DOMAIN price AS money",
    f'CREATE TABLE {T.quoted} (id int PRIMARY KEY, "a ""b" money, p price, n int)',
    f"INSERT INTO {T.quoted} VALUES (1, 1235.2::numeric::money, 7::money, 1)",
)
AMOUNTS = f'SELECT "a ""b"::numeric, p::numeric FROM {T.quoted}'
LOCALES = {digits: f"{country}.utf8" for digits, country in ((0, "ja_JP"), (2, "nl_NL"), (3, "ar_KW"))}


@pytest.fixture(scope="module")
def locales() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="headrace-test-") as made:
        for digits, name in LOCALES.items():
            assert write_money(Path(made), digits) == name
        yield Path(made)


@pytest.fixture(scope="module")
def server(locales: Path) -> Iterator[Database]:
    with postgres_server(17, locales=locales) as dsn:
        yield Database(dsn)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "pri ces") as made:
        yield made


def told(database: Database, user: str = "postgres") -> list[Finding]:
    source = PostgresSource(psycopg.conninfo.make_conninfo(database.dsn, user=user))
    return [one for one in source.preflight([T]) if one.code == "SOURCE_MONEY"]


@pytest.mark.parametrize(("digits", "as_"), [(0, "delivered as 0.01"), (3, "delivered as 10")])
def test_money_in_another_unit_is_refused_until_it_is_a_number(
    database: Database, digits: int, as_: str
) -> None:
    database.run(f"ALTER DATABASE \"pri ces\" SET lc_monetary = '{LOCALES[digits]}'")
    database.run(*TABLE)
    before = database.run(AMOUNTS)
    (found,) = told(database)
    assert 'a "b, p' in found.message
    assert as_ in found.message
    left = PostgresSource(database.dsn, leave_out={T: ('a "b', "p")}).preflight([T])
    assert "SOURCE_MONEY" not in {one.code for one in left}
    # Run by whoever has another lc_monetary.
    with psycopg.connect(database.dsn, options="-c lc_monetary=C", autocommit=True) as person:
        person.execute(found.hint.encode())
    assert told(database) == []
    assert database.run(AMOUNTS) == before


def test_two_digits_in_another_country_are_captured(database: Database) -> None:
    database.run(f"ALTER DATABASE \"pri ces\" SET lc_monetary = '{LOCALES[2]}'", *TABLE)
    assert told(database) == []


def test_a_role_that_writes_in_another_unit_is_told_with_the_statement_that_stops_it(
    database: Database,
) -> None:
    database.run(*TABLE, 'CREATE ROLE "r w"', f"ALTER ROLE \"r w\" SET lc_monetary = '{LOCALES[0]}'")
    database.run(f'ALTER ROLE "r w" IN DATABASE "pri ces" SET lc_monetary = \'{LOCALES[3]}\'')
    try:
        for _ in range(2):
            (found,) = told(database)
            assert "role r w" in found.message
            database.run(found.hint)
        assert told(database) == []
    finally:
        database.run('DROP ROLE "r w"')


def test_a_setting_of_our_own_role_does_not_hide_that_of_the_server(database: Database) -> None:
    database.run(
        *TABLE,
        f"ALTER SYSTEM SET lc_monetary = '{LOCALES[0]}'",
        "SELECT pg_reload_conf()",
        "CREATE ROLE plain LOGIN REPLICATION",
        f"ALTER TABLE {T.quoted} OWNER TO plain",
        "ALTER ROLE plain SET lc_monetary = 'C'",
        "ALTER ROLE postgres IN DATABASE \"pri ces\" SET lc_monetary = 'C'",
    )
    try:
        (seen,) = told(database)  # whom the server tells what its files say
        assert "that of the server" in seen.message
        (hidden,) = told(database, "plain")
        database.run(hidden.hint)
        (found,) = told(database, "plain")
        assert "that of the server" in found.message
    finally:
        database.run(
            "ALTER SYSTEM RESET ALL",
            "SELECT pg_reload_conf()",
            'ALTER ROLE postgres IN DATABASE "pri ces" RESET ALL',
            "DROP OWNED BY plain CASCADE",
            "DROP ROLE plain",
        )


def test_a_unit_that_is_changed_later_is_told_until_it_is_over(database: Database) -> None:
    database.run(*TABLE)
    source = PostgresSource(database.dsn)
    capture = Capture("money", tuple(source.catalogue([T])), "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        assert watch.look(facts).troubles == ()
        database.run(f"ALTER DATABASE \"pri ces\" SET lc_monetary = '{LOCALES[0]}'")
        (found,) = watch.look(facts).troubles
        assert (found.code, found.lost, found.lasts) == ("MONEY_MISREAD", True, True)
        assert "TYPE numeric(19, 0)" in found.statement
        database.run('ALTER DATABASE "pri ces" RESET lc_monetary')
        assert watch.look(facts).troubles == ()
    finally:
        watch.close()
        source.teardown(capture)
