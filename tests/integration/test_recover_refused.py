"""A recovery that the database would not let us finish is refused before anything is given up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import pytest

from connectors.postgres import PostgresSource
from headrace.control import recover, tables
from headrace.control.capture import capture_of
from headrace.control.check_again import check_again
from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry
from headrace.control.registry import Registry
from headrace.model.errors import SourceError, StackError
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.registered import lonely, register
from tests.support.servers import MAJORS, postgres_server

if TYPE_CHECKING:
    from typing_extensions import LiteralString

pytestmark = [pytest.mark.stack, pytest.mark.deep]

ROLE = "plain"
T, U = TableId("public", "t"), TableId("public", "u")
SLOT = "SELECT pg_create_logical_replication_slot('headrace_shop', 'pgoutput')"
OURS = """
SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_namespace n
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind = 'r' WHERE n.nspname = 'headrace')
"""
FUNCTION = (
    "CREATE FUNCTION public.watch() RETURNS event_trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'nothing is dropped here'; END $$"
)
TRIGGER = "CREATE EVENT TRIGGER watch_all ON sql_drop EXECUTE FUNCTION public.watch()"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server(MAJORS[0]) as dsn:
        yield dsn


@pytest.fixture
def database(server: str) -> Iterator[Database]:
    """As the superuser, with tables of a role that has what it needs and no more."""
    with fresh_database(server, "shop") as made:
        made.run(
            f"CREATE ROLE {ROLE} LOGIN REPLICATION",
            "CREATE ROLE dba",
            f"GRANT CREATE ON DATABASE shop TO {ROLE}",
            "CREATE TABLE t (id int PRIMARY KEY)",
            "CREATE TABLE u (id int PRIMARY KEY)",
            f"ALTER TABLE t OWNER TO {ROLE}",
            f"ALTER TABLE u OWNER TO {ROLE}",
        )
        try:
            yield made
        finally:
            made.run("DROP EVENT TRIGGER IF EXISTS watch_all")
            for role in (ROLE, "dba"):
                made.run(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return lonely(tmp_path)


def of_role(database: Database) -> str:
    place = urlsplit(database.dsn)
    return urlunsplit(place._replace(netloc=f"{ROLE}@{place.netloc.rpartition('@')[2]}"))


def told(context: Context) -> dict[str, Severity]:
    """Return code → severity, of what the check of the source says is not well."""
    found = check_again(context, "shop")
    return {one.code: one.severity for one in found if one.severity is not Severity.OK}


def refused(context: Context, database: Database) -> SourceError:
    """Try to recover; return what it is refused for. Everything is as before then."""
    before = database.value(OURS)
    with pytest.raises(SourceError) as caught:
        recover.recover(context, "shop")
    assert database.value(OURS) == before == 3
    registry = Registry(context.registry)
    with registry.begin() as session:
        assert session.get(RecoveryEntry, "shop") is None
    assert registry.source("shop").gap is None
    return caught.value


def pasted(database: Database, error: SourceError) -> None:
    """Carry out what is told, as a superuser."""
    *statements, last = error.hint.splitlines()
    assert last == "Then: headrace recover shop"
    for statement in statements:
        database.run(statement.partition("  --")[0])


def goes_on(context: Context, database: Database) -> None:
    """A recovery is refused for nothing that is the database's."""
    with pytest.raises(StackError) as caught:
        recover.recover(context, "shop")
    assert caught.value.code == "CONNECT_UNREACHABLE"
    source = PostgresSource(of_role(database), name="shop")
    capture = capture_of(context, Registry(context.registry).source("shop"))
    assert source.teardown(capture).statements == ()
    source.setup(capture)


def test_a_right_to_make_all_anew_that_is_gone(context: Context, database: Database) -> None:
    """It is told while nothing is lost, too; and nothing that is there is made again."""
    capture = register(context, "shop", of_role(database), T)
    database.run(f"REVOKE CREATE ON DATABASE shop FROM {ROLE}", SLOT)
    assert told(context).pop("SOURCE_CREATE_RIGHT") is Severity.WARNING
    database.run("SELECT pg_drop_replication_slot('headrace_shop')")
    assert told(context).pop("SOURCE_CREATE_RIGHT") is Severity.ERROR
    error = refused(context, database)
    assert error.code == "SOURCE_CREATE_RIGHT"
    foretold = recover.plan(context, "shop").refused
    assert foretold is not None
    assert foretold.as_dict() == error.as_dict()
    PostgresSource(of_role(database)).setup(capture)
    pasted(database, error)
    assert "SOURCE_CREATE_RIGHT" not in told(context)
    goes_on(context, database)


@pytest.mark.parametrize(
    ("shut", "code"),
    [
        pytest.param((f"REVOKE SELECT ON t FROM {ROLE}",), "SOURCE_SELECT_RIGHT", id="right"),
        pytest.param(
            ("ALTER TABLE t ENABLE ROW LEVEL SECURITY", "ALTER TABLE t FORCE ROW LEVEL SECURITY"),
            "SOURCE_ROW_SECURITY",
            id="row security",
        ),
    ],
)
def test_rows_that_our_role_may_not_read_any_more(
    context: Context, database: Database, shut: tuple[LiteralString, ...], code: str
) -> None:
    register(context, "shop", of_role(database), T, U)
    database.run(*shut)
    error = refused(context, database)
    assert error.code == code
    pasted(database, error)
    assert recover.plan(context, "shop").refused is None


def test_an_event_trigger_that_lets_nothing_be_dropped(context: Context, database: Database) -> None:
    capture = register(context, "shop", of_role(database), T)
    database.run(FUNCTION, TRIGGER, SLOT)
    assert told(context).pop("SOURCE_EVENT_TRIGGER") is Severity.WARNING
    database.run("SELECT pg_drop_replication_slot('headrace_shop')")
    assert told(context).pop("SOURCE_EVENT_TRIGGER") is Severity.ERROR
    error = refused(context, database)
    assert error.code == "SOURCE_EVENT_TRIGGER"
    assert "nothing is dropped here" in error.message
    left = PostgresSource(of_role(database)).teardown(capture)
    assert left.hint in error.hint, "also where the trigger comes after the check"
    assert "ALTER EVENT TRIGGER" in left.hint
    pasted(database, error)
    assert "SOURCE_EVENT_TRIGGER" not in told(context)
    goes_on(context, database)


def test_what_is_ours_that_belongs_to_somebody_else(
    context: Context, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a dump that was restored with --no-owner."""
    capture = register(context, "shop", of_role(database), T)
    database.run(
        SLOT,
        "ALTER PUBLICATION headrace_shop OWNER TO dba",
        f"ALTER TABLE {capture.signals.quoted} OWNER TO dba",
        f"ALTER TABLE {capture.heartbeat.quoted} OWNER TO dba",
    )
    assert told(context).pop("SOURCE_OBJECT_OWNER") is Severity.ERROR
    source = PostgresSource(of_role(database))
    with pytest.raises(SourceError) as denied:
        source.request_snapshot(capture, [T], "signal")
    assert denied.value.code == "SOURCE_DENIED"
    assert "headrace source check" in denied.value.hint
    monkeypatch.setattr(tables, "refuse_not_streaming", lambda *_, **__: None)
    with pytest.raises(SourceError) as unfit:
        tables.take_in(context, "shop", [U])
    assert unfit.value.code == "SOURCE_UNFIT"
    error = refused(context, database)
    assert error.hint.startswith(unfit.value.hint)
    assert error.hint.count("OWNER TO") == 3
    pasted(database, error)
    assert "SOURCE_OBJECT_OWNER" not in told(context)
    goes_on(context, database)


def test_a_captured_table_that_belongs_to_somebody_else(context: Context, database: Database) -> None:
    register(context, "shop", of_role(database), T, U)
    database.run("ALTER TABLE u OWNER TO dba", f"GRANT SELECT ON u TO {ROLE}")
    error = refused(context, database)
    assert error.code == "SOURCE_TABLE_OWNER"
    pasted(database, error)
    goes_on(context, database)


def test_what_others_have_built_upon_our_tables(context: Context, database: Database) -> None:
    """A recovery would drop the slot, and could never make the tables anew."""
    capture = register(context, "shop", of_role(database), T)
    database.run(SLOT, f"CREATE VIEW beat AS SELECT at FROM {capture.heartbeat.quoted}")
    assert told(context).pop("SOURCE_OBJECT_USED") is Severity.WARNING
    database.run("SELECT pg_drop_replication_slot('headrace_shop')")
    assert told(context).pop("SOURCE_OBJECT_USED") is Severity.ERROR
    error = refused(context, database)
    assert error.code == "SOURCE_OBJECT_USED"
    assert "view public.beat" in error.message
    pasted(database, error)
    assert "SOURCE_OBJECT_USED" not in told(context)
    goes_on(context, database)
