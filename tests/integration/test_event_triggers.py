"""Event triggers of others that refuse what we do to a database, or change what we make there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.model.errors import SourceError
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server

pytestmark = pytest.mark.stack

T = TableId("public", "t")
ROLE = "plain"


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres_server(18) as dsn:
        yield Database(dsn)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "checked") as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)")
        yield made


@pytest.fixture
def plain(database: Database) -> Iterator[str]:
    """Yield the address as a role that has no more rights than it needs."""
    database.run(
        f"CREATE ROLE {ROLE} LOGIN REPLICATION",
        f"ALTER TABLE t OWNER TO {ROLE}",
        f"GRANT CREATE ON DATABASE checked TO {ROLE}",
    )
    try:
        yield psycopg.conninfo.make_conninfo(database.dsn, user=ROLE)
    finally:
        database.run("DROP EVENT TRIGGER IF EXISTS watch_all")
        database.run(f"DROP OWNED BY {ROLE} CASCADE", f"DROP ROLE {ROLE}")


def told(dsn: str) -> dict[str, Any]:
    """Return code → finding, of what is not well."""
    return {one.code: one for one in PostgresSource(dsn).preflight([T]) if one.severity is not Severity.OK}


FUNCTION = "CREATE FUNCTION public.watch() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN {} END $$"
TRIGGERS = {
    "made": (
        FUNCTION.format("INSERT INTO public.ddl_log VALUES (tg_tag);"),
        "CREATE EVENT TRIGGER watch_all ON ddl_command_end EXECUTE FUNCTION public.watch()",
    ),
    "gone": (
        FUNCTION.format("RAISE EXCEPTION 'nothing is dropped here';"),
        "CREATE EVENT TRIGGER watch_all ON sql_drop EXECUTE FUNCTION public.watch()",
    ),
}


@pytest.mark.parametrize(
    ("which", "severity", "words"),
    [
        ("made", Severity.ERROR, "permission denied for table ddl_log"),
        ("gone", Severity.WARNING, "nothing is dropped here"),
    ],
)
def test_an_event_trigger_that_refuses_our_statements(
    database: Database, plain: str, which: str, severity: Severity, words: str
) -> None:
    """What `remove` may not remove is left and told; the slot, which would keep the log, goes first."""
    database.run("CREATE TABLE ddl_log (tag text)")
    assert "SOURCE_EVENT_TRIGGER" not in told(plain)
    source = PostgresSource(plain)
    capture = Capture("audited", tuple(source.catalogue([T])), "placeholder", "password")
    source.setup(capture)
    database.run(
        *TRIGGERS[which], "SELECT pg_create_logical_replication_slot('headrace_audited', 'pgoutput')"
    )
    found = told(plain)["SOURCE_EVENT_TRIGGER"]
    assert found.severity is severity
    assert words in found.message
    assert database.run("SELECT 1 FROM pg_namespace WHERE nspname ~ 'headrace_check'") == []
    left = source.teardown(capture)
    assert words in left.why
    assert database.run("SELECT 1 FROM pg_replication_slots") == []
    database.run(found.hint.partition("  --")[0])
    assert "SOURCE_EVENT_TRIGGER" not in told(plain)
    for statement in left.statements:
        database.run(statement)
    assert database.run("SELECT 1 FROM pg_publication") == []
    assert source.teardown(capture).statements == ()


@pytest.mark.parametrize(
    ("tag", "severity"),
    [
        ("ALTER TABLE", Severity.ERROR),
        ("ALTER PUBLICATION", Severity.WARNING),
        ("DROP SCHEMA", Severity.WARNING),
    ],
)
def test_an_event_trigger_that_refuses_one_kind_of_statement(
    database: Database, tag: str, severity: Severity
) -> None:
    """It is told before, beside one that refuses nothing, and helped against as the refusal tells."""
    database.run(
        "CREATE TABLE u (id int PRIMARY KEY)",
        FUNCTION.format("RAISE EXCEPTION 'not here';"),
        FUNCTION.format("").replace("public.watch", "public.idle"),
        f"CREATE EVENT TRIGGER \"watch a tag\" ON ddl_command_start WHEN TAG IN ('{tag}')"
        " EXECUTE FUNCTION public.watch()",
        "CREATE EVENT TRIGGER idle ON ddl_command_end EXECUTE FUNCTION public.idle()",
    )
    source = PostgresSource(database.dsn)
    one, both = (
        Capture("audited", tuple(source.catalogue(tables)), "placeholder", "password")
        for tables in ([T], [T, TableId("public", "u")])
    )

    def lives() -> str:
        """Make all, alter it and remove it; return why some of it stays."""
        source.setup(one)
        source.publish(both)
        return source.teardown(both).why

    def refused() -> tuple[str, str, str]:
        try:
            return "SOURCE_REFUSED", lives(), found.hint
        except SourceError as error:
            return error.code, error.message, error.hint

    found = told(database.dsn)["SOURCE_EVENT_TRIGGER"]
    assert (found.severity, "not here" in found.message, "idle" in found.hint) == (severity, True, False)
    code, why, hint = refused()
    assert (code, "not here" in why, hint) == ("SOURCE_REFUSED", True, found.hint)
    assert "SOURCE_EVENT_TRIGGER" in told(database.dsn), "also where the schema is there already"
    database.run(hint.partition("  --")[0])
    assert "SOURCE_EVENT_TRIGGER" not in told(database.dsn)
    assert lives() == ""
    assert database.run("SELECT 1 FROM pg_namespace WHERE nspname ~ 'headrace'") == []


LATE = """CREATE FUNCTION public.late() RETURNS trigger LANGUAGE plpgsql
          AS $$ BEGIN RAISE EXCEPTION 'not at last'; END $$"""
LATER = "AFTER INSERT ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.late()"
CHANGES = {
    "row security": (
        "SOURCE_DENIED",
        "ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        "row-level security policy",
    ),
    "a column": ("SOURCE_REFUSED", "ALTER TABLE %s ADD COLUMN made_by text NOT NULL", "null value"),
    "at the commit": (
        "SOURCE_REFUSED",
        f"CREATE CONSTRAINT TRIGGER late {LATER}",
        "not at last",
    ),
}
"""Each with the code of the refusal, and its words."""


def changing(database: Database, change: str, which: str = "") -> None:
    """Have a trigger change each new table of those, beside one that drops nothing."""
    body = (
        "DECLARE one record; BEGIN FOR one IN SELECT * FROM pg_event_trigger_ddl_commands()"
        f" WHERE object_type = 'table' {which} LOOP"
        f" EXECUTE format('{change}', one.object_identity); END LOOP;"
    )
    database.run(
        LATE,
        FUNCTION.replace("BEGIN {}", "{}").format(body),
        "CREATE EVENT TRIGGER watch_all ON ddl_command_end WHEN TAG IN ('CREATE TABLE')"
        " EXECUTE FUNCTION public.watch()",
        FUNCTION.format("").replace("public.watch", "public.idle"),
        "CREATE EVENT TRIGGER idle ON sql_drop EXECUTE FUNCTION public.idle()",
    )


@pytest.mark.parametrize("how", CHANGES)
def test_an_event_trigger_that_changes_what_we_make_is_told_before(
    database: Database, plain: str, how: str
) -> None:
    """No error of the row that is refused then names the trigger."""
    _, change, words = CHANGES[how]
    changing(database, change)
    found = told(plain)["SOURCE_EVENT_TRIGGER"]
    assert found.severity is Severity.ERROR
    assert words in found.message
    assert "watch_all (on ddl_command_end, runs public.watch)" in found.message
    assert "idle" not in found.hint
    database.run(found.hint.partition("  --")[0])
    source = PostgresSource(plain)
    assert "SOURCE_EVENT_TRIGGER" not in told(plain)
    source.setup(Capture("audited", tuple(source.catalogue([T])), "placeholder", "password"))


@pytest.mark.parametrize("how", CHANGES)
def test_an_event_trigger_that_changes_only_what_is_not_tried_is_told_when_it_refuses(
    database: Database, plain: str, how: str
) -> None:
    code, change, words = CHANGES[how]
    changing(database, change, "AND object_identity NOT LIKE '%.check_%'")
    assert "SOURCE_EVENT_TRIGGER" not in told(plain)
    source = PostgresSource(plain)
    capture = Capture("audited", tuple(source.catalogue([T])), "placeholder", "password")
    with pytest.raises(SourceError, match=words) as refused:
        source.setup(capture)
    assert refused.value.code == code
    *first, helps = refused.value.hint.split("\n")
    assert ["GRANT" in line for line in first] == [True] * (code == "SOURCE_DENIED")
    database.run(helps.removeprefix("Where none is missing: ").partition("  --")[0])
    source.setup(capture)


def test_an_event_trigger_that_lets_no_schema_be_made_is_nothing_against_one_that_is_there(
    database: Database, plain: str
) -> None:
    """It is another role's, so that nobody of ours makes or drops it."""
    database.run(
        "CREATE SCHEMA headrace",
        f"GRANT USAGE, CREATE ON SCHEMA headrace TO {ROLE}",
        FUNCTION.format("RAISE EXCEPTION 'no schema here';"),
        "CREATE EVENT TRIGGER watch_all ON ddl_command_start WHEN TAG IN ('CREATE SCHEMA', 'DROP SCHEMA')"
        " EXECUTE FUNCTION public.watch()",
    )
    assert "SOURCE_EVENT_TRIGGER" not in told(plain)
    source = PostgresSource(plain)
    capture = Capture("audited", tuple(source.catalogue([T])), "placeholder", "password")
    source.setup(capture)
    assert "SOURCE_EVENT_TRIGGER" not in {one.code for one in source.check_anew(capture)}
    assert source.teardown(capture).statements == ()
    source.setup(capture)


def test_who_makes_the_same_just_now_is_no_refusal_by_an_event_trigger(
    database: Database, plain: str
) -> None:
    """A registration waits for its turn; what is not tried is told."""
    database.run(
        FUNCTION.format(""),
        "CREATE EVENT TRIGGER watch_all ON ddl_command_end EXECUTE FUNCTION public.watch()",
    )
    with psycopg.connect(database.dsn) as other:
        other.execute("CREATE SCHEMA headrace")
        found = told(plain)["SOURCE_EVENT_TRIGGER"]
        assert found.severity is Severity.WARNING
        assert "DISABLE" not in found.hint
        other.rollback()
    assert "SOURCE_EVENT_TRIGGER" not in told(plain)
