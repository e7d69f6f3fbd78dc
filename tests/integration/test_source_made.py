"""What `source add` makes in a database is made whatever others have set, or is refused by the check."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.config.source import SourceSettings
from headrace.control import source_check
from headrace.model.errors import SourceError
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server

pytestmark = pytest.mark.stack

T = TableId("public", "t")


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres_server(18) as dsn:
        yield Database(dsn)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    """As the superuser; two roles have what they need and no more."""
    with fresh_database(server.dsn, "made") as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE ROLE owners")
        for role in ("plain", "former"):
            made.run(
                f"CREATE ROLE {role} LOGIN REPLICATION IN ROLE owners",
                f"GRANT CREATE ON DATABASE made TO {role}",
            )
        made.run("ALTER TABLE t OWNER TO owners")
        try:
            yield made
        finally:
            for role in ("plain", "former", "owners"):
                made.run(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def of_role(database: Database, role: str) -> str:
    return psycopg.conninfo.make_conninfo(database.dsn, user=role)


def capture_by(source: PostgresSource) -> Capture:
    return Capture("made", tuple(source.catalogue([T])), "x", "", settings=SourceSettings())


def errors(source: PostgresSource) -> list[Finding]:
    return [found for found in source.preflight([T]) if found.severity is Severity.ERROR]


def test_settings_that_would_have_other_objects_made(server: Database, database: Database) -> None:
    """Backslashes that are read as escapes, and a tablespace in which our role may make nothing."""
    server.run("SET allow_in_place_tablespaces = on", "CREATE TABLESPACE narrow LOCATION ''")
    try:
        for setting in ("default_tablespace = narrow", "standard_conforming_strings = off"):
            database.run(f"ALTER ROLE plain SET {setting}")
        source = PostgresSource(of_role(database, "plain"))
        assert errors(source) == []
        source.setup(capture_by(source))
        specimen = database.value("SELECT to_jsonb(h)::text FROM headrace.made_heartbeat h")
        assert r"\\x00ff" in specimen
        assert source.teardown(capture_by(source)).statements == ()
    finally:
        server.run("DROP TABLESPACE narrow")


def test_what_another_role_has_left_is_told_before(database: Database) -> None:
    """The statements that are told let the role make what it needs."""
    former, source = (PostgresSource(of_role(database, role)) for role in ("former", "plain"))
    former.setup(capture_by(former))
    with pytest.raises(SourceError) as caught:
        source.refuse_taken(capture_by(source))
    assert caught.value.code == "SOURCE_OBJECT_OWNER"
    database.run(*caught.value.hint.splitlines())
    source.refuse_taken(capture_by(source))
    database.run("GRANT USAGE, CREATE ON SCHEMA headrace TO plain")
    assert errors(source) == []
    source.setup(capture_by(source))


def test_default_privileges_that_keep_our_role_from_what_it_makes(database: Database) -> None:
    """A schema that is there is not made: then only the tables count, until all is made anew."""
    source = PostgresSource(of_role(database, "plain"))
    mine = "ALTER DEFAULT PRIVILEGES FOR ROLE plain"
    database.run(f"{mine} REVOKE USAGE ON SCHEMAS FROM plain", f"{mine} GRANT SELECT ON TABLES TO owners")
    (schemas,) = errors(source)
    assert "USAGE on schemas" in schemas.message
    database.run(
        "CREATE SCHEMA headrace AUTHORIZATION plain",
        "GRANT USAGE ON SCHEMA headrace TO plain",
        f"{mine} REVOKE ALL ON TABLES FROM plain",
    )
    (tables,) = errors(source)  # what a role that ours is a member of may read, ours may
    assert "INSERT, UPDATE, DELETE on tables" in tables.message
    (both,) = (one for one in source.check_anew(capture_by(source)) if one.severity is Severity.ERROR)
    assert {one.code for one in (schemas, tables, both)} == {"SOURCE_CREATE_RIGHT"}
    with pytest.raises(SourceError, match="permission denied for table made_heartbeat"):
        source.setup(capture_by(source))
    database.run(tables.hint)
    assert errors(source) == []
    source.setup(capture_by(source))
    assert source.teardown(capture_by(source)).statements == ()
    with pytest.raises(SourceError, match="permission denied for schema headrace"):
        source.setup(capture_by(source))
    assert both.hint == f"{schemas.hint} {tables.hint}"
    database.run(schemas.hint)
    source.setup(capture_by(source))


def test_an_address_of_several_hosts_is_refused_by_the_check(database: Database) -> None:
    login, _, place = database.dsn.rpartition("@")
    host, _, name = place.partition("/")
    several = f"{login}@{host},{host}/{name}"
    found = [one for one in source_check.check(several, tables=[T]) if one.severity is Severity.ERROR]
    assert [one.code for one in found] == ["SOURCE_URL_INVALID"]


def test_a_publication_of_all_tables_is_told(database: Database) -> None:
    """Ours would be in it, too, and whoever subscribes to it stops for want of them."""
    source = PostgresSource(database.dsn)
    database.run("CREATE PUBLICATION everything FOR ALL TABLES")
    (told,) = [one for one in source.preflight([T]) if one.code == "SOURCE_PUBLISHED_ALL"]
    assert told.severity is Severity.WARNING
    assert "everything" in told.message
    database.run("DROP PUBLICATION everything")
    assert all(one.code != "SOURCE_PUBLISHED_ALL" for one in source.preflight([T]))


@pytest.mark.parametrize("whose", ["DATABASE made", "ROLE plain"])
def test_the_last_connections_are_left_to_the_application(database: Database, whose: str) -> None:
    source = PostgresSource(of_role(database, "plain"))
    database.run(f"ALTER {whose} CONNECTION LIMIT 7")
    assert errors(source) == []
    with psycopg.connect(of_role(database, "plain")), psycopg.connect(of_role(database, "plain")):
        (found,) = errors(source)
        assert found.code == "SOURCE_CONNECTIONS"
        database.run(found.hint)
        assert errors(source) == []
