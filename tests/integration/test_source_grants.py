"""Roles with few or odd rights: the check says what they lack, and what it tells to run is enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from connectors.postgres.address import parameters
from connectors.postgres.granted import USEFUL
from connectors.postgres.properties import session_settings, startup_options
from connectors.postgres.session import session
from headrace.control import source_check
from headrace.model.errors import SourceError
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import MAJORS, postgres_server
from tests.support.waiting import until

pytestmark = pytest.mark.stack

T = TableId("public", "t")
ROLE, OWNER = "plain", "owning"


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres_server(18) as dsn:
        yield Database(dsn)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh(server.dsn) as made:
        yield made


@contextmanager
def fresh(dsn: str) -> Iterator[Database]:
    """Yield a database as the superuser, with a table of a role that has what it needs and no more."""
    with fresh_database(dsn, "granted") as made:
        made.run(
            f"CREATE ROLE {ROLE} LOGIN REPLICATION",
            f"CREATE ROLE {OWNER}",
            f"GRANT CREATE ON DATABASE granted TO {ROLE}",
            "CREATE TABLE t (id int PRIMARY KEY)",
            f"ALTER TABLE t OWNER TO {ROLE}",
        )
        try:
            yield made
        finally:
            made.run(f"DROP OWNED BY {ROLE}, {OWNER} CASCADE", f"DROP ROLE {ROLE}, {OWNER}")


def of_role(database: Database) -> str:
    return database.dsn.replace("postgres@", f"{ROLE}@", 1)


def told(database: Database) -> dict[str, tuple[Severity, str, str]]:
    """Return code → what is not well, as the command tells it; a refusal is one as well."""
    try:
        found = source_check.check(of_role(database))
    except SourceError as error:
        return {error.code: (Severity.ERROR, error.message, error.hint)}
    return {
        one.code: (one.severity, one.message, one.hint)
        for one in found
        if one.severity is not Severity.OK and one.code != "SOURCE_WAL_UNBOUNDED"
    }


def paste(database: Database, hint: str) -> None:
    database.run(*hint.partition("  --")[0].removesuffix(";").split("; "))


def captured(database: Database) -> tuple[PostgresSource, Capture]:
    source = PostgresSource(of_role(database))
    return source, Capture("granted", tuple(source.catalogue([T])), "placeholder", "password")


@pytest.mark.parametrize(
    ("right", "kind", "name"),
    [
        ("EXECUTE", "FUNCTION", "current_setting(text, boolean)"),
        ("EXECUTE", "FUNCTION", "set_config(text, text, boolean)"),
        ("EXECUTE", "FUNCTION", "pg_is_in_recovery()"),
        ("EXECUTE", "FUNCTION", "pg_drop_replication_slot(name)"),
        ("EXECUTE", "FUNCTION", "pg_stat_get_live_tuples(oid)"),
        ("EXECUTE", "FUNCTION", "pg_get_expr(pg_node_tree, oid)"),
        ("EXECUTE", "FUNCTION", "has_table_privilege(oid, text)"),
        ("EXECUTE", "FUNCTION", "textcat(text, text)"),
        ("SELECT", "TABLE", "pg_roles"),
        ("SELECT", "TABLE", "pg_replication_slots"),
        ("SELECT", "TABLE", "pg_class"),
        ("USAGE", "SCHEMA", "information_schema"),
    ],
)
def test_what_a_hardened_server_has_revoked_is_named_with_its_grant(
    database: Database, right: str, kind: str, name: str
) -> None:
    """Also what only the connector, the watcher or a removal asks, and what asking what is lacking takes."""
    assert told(database) == {}
    database.run(f"REVOKE {right} ON {kind} {name} FROM PUBLIC")
    ((code, (severity, message, hint)),) = told(database).items()
    assert (code, severity) == ("SOURCE_CATALOGUE_RIGHT", Severity.ERROR)
    assert f"role {ROLE} " in message
    assert name.partition("(")[0] in message
    paste(database, hint)
    assert told(database) == {}


def test_a_password_that_will_not_be_valid_for_ever(database: Database) -> None:
    for until_when in ("tomorrow", "infinity", "yesterday"):  # who comes in otherwise is not asked for it
        database.run(f"ALTER ROLE {ROLE} VALID UNTIL '{until_when}'")
        found = told(database)
        assert found.keys() == ({"SOURCE_LOGIN_ENDS"} if until_when != "infinity" else set())
        for severity, _, hint in found.values():
            assert severity is Severity.WARNING
            paste(database, hint)
        assert told(database) == {}


def test_a_server_that_has_revoked_everything_is_opened_grant_by_grant(database: Database) -> None:
    """No statement is told twice; what the check has nothing against is made, watched and removed."""
    database.run(
        "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA pg_catalog FROM PUBLIC",
        "REVOKE SELECT ON ALL TABLES IN SCHEMA pg_catalog FROM PUBLIC",
    )
    pasted: list[str] = []
    while errors := [(code, one[2]) for code, one in told(database).items() if one[0] is Severity.ERROR]:
        ((code, hint),) = errors
        assert code == "SOURCE_CATALOGUE_RIGHT"
        assert hint not in pasted
        paste(database, hint)
        pasted.append(hint)
    source, capture = captured(database)
    source.setup(capture)
    source.hold(capture, loading=True)
    with closing(source.watch(capture)) as watch:
        watch.look({})
    assert source.teardown(capture).statements == ()


@pytest.mark.parametrize("name", sorted(USEFUL))
def test_what_one_can_do_without_is_left_out_with_a_warning(database: Database, name: str) -> None:
    """Setup, `lag`, the watcher and a removal go on without it."""
    exact = database.value(
        f"SELECT coalesce('FUNCTION ' || (SELECT oid::regprocedure FROM pg_proc WHERE proname = '{name}'),"
        f" '{name}')"
    )
    database.run(f"REVOKE ALL ON {exact} FROM PUBLIC")
    ((code, (severity, message, hint)),) = told(database).items()
    assert (code, severity) == ("SOURCE_CATALOGUE_RIGHT", Severity.WARNING)
    assert name in message
    source, capture = captured(database)
    source.setup(capture)
    source.hold(capture, loading=True)
    watch = source.watch(capture)
    try:
        watch.look({})
    finally:
        watch.close()
    assert source.teardown(capture).statements == ()
    paste(database, hint)
    assert told(database) == {}


def test_what_is_revoked_while_a_source_is_watched_is_named_by_the_look(database: Database) -> None:
    source, capture = captured(database)
    source.setup(capture)
    watch = source.watch(capture)
    try:
        watch.look({})
        database.run("REVOKE EXECUTE ON FUNCTION pg_stat_get_live_tuples(oid) FROM PUBLIC")
        with pytest.raises(SourceError, match=r"pg_stat_get_live_tuples\(\)") as caught:
            watch.look({})
        assert caught.value.code == "SOURCE_CATALOGUE_RIGHT"
        paste(database, caught.value.hint)
        watch.look({})
    finally:
        watch.close()


def test_a_slot_that_may_not_be_dropped_is_left_and_told_with_the_grant(database: Database) -> None:
    source, capture = captured(database)
    source.setup(capture)
    database.run(
        "SELECT pg_create_logical_replication_slot('headrace_granted', 'pgoutput')",
        "REVOKE EXECUTE ON FUNCTION pg_drop_replication_slot(name) FROM PUBLIC",
    )
    left = source.teardown(capture)
    assert left.slot
    assert "pg_drop_replication_slot" in left.why
    paste(database, left.hint)
    assert source.teardown(capture).statements == ()


def test_a_check_that_is_denied_sends_nobody_to_the_check(database: Database) -> None:
    database.run("CREATE TABLE kept (id int)")
    for whose, sent in (("", False), ("shop", True)):
        with (
            pytest.raises(SourceError, match="permission denied for table kept") as caught,
            session(parameters(of_role(database)), whose=whose) as connection,
        ):
            connection.execute("SELECT FROM public.kept")
        assert caught.value.code == "SOURCE_DENIED"
        assert ("headrace source check" in caught.value.hint) is sent


@pytest.mark.parametrize(("attribute", "joined"), [("NOINHERIT", ""), ("INHERIT", "WITH INHERIT FALSE")])
def test_an_owner_whose_rights_are_not_inherited(database: Database, attribute: str, joined: str) -> None:
    database.run(
        f"ALTER ROLE {ROLE} {attribute}",
        f"ALTER TABLE t OWNER TO {OWNER}",
        f"GRANT {OWNER} TO {ROLE} {joined}",
    )
    found = told(database)
    assert found.keys() == {"SOURCE_TABLE_OWNER", "SOURCE_SELECT_RIGHT"}
    paste(database, found["SOURCE_TABLE_OWNER"][2])
    assert told(database) == {}
    source, capture = captured(database)
    source.setup(capture)


@pytest.mark.deep
@pytest.mark.parametrize("major", MAJORS[1:])
def test_rights_in_every_version(major: int) -> None:
    """What a version knows of the catalogue is asked of it, and its roles are helped in its own words."""
    with postgres_server(major) as dsn, fresh(dsn) as database:
        database.run(
            f"ALTER ROLE {ROLE} NOINHERIT",
            f"ALTER ROLE {ROLE} SET role = {OWNER}",
            f"ALTER TABLE t OWNER TO {OWNER}",
            f"GRANT {OWNER} TO {ROLE}",
            "REVOKE SELECT ON pg_roles FROM PUBLIC",
        )
        paste(database, told(database)["SOURCE_CATALOGUE_RIGHT"][2])
        paste(database, told(database)["SOURCE_TABLE_OWNER"][2])
        assert told(database) == {}


def test_a_session_in_the_way_of_a_role_that_is_not_inherited_blinds_no_watcher(database: Database) -> None:
    """It has the connector's name, and may not be ended by us."""
    database.run(f"ALTER ROLE {OWNER} LOGIN", f"GRANT {OWNER} TO {ROLE} WITH INHERIT FALSE")
    source, capture = captured(database)
    source.setup(capture)
    database.run(f"GRANT SELECT ON t TO {OWNER}")
    login = psycopg.conninfo.make_conninfo(database.dsn, user=OWNER, application_name=capture.connector)
    watch = source.watch(capture)
    with closing(psycopg.connect(login)) as reader, closing(psycopg.connect(database.dsn)) as waiting:
        reader.execute("SELECT FROM t")
        waiting.pgconn.send_query(b"BEGIN; LOCK TABLE t")
        long = "waitstart < clock_timestamp() - interval '2 s'"
        waits = f"SELECT count(*) FROM pg_locks WHERE NOT granted AND {long}"
        until(lambda: database.value(waits) == 1)
        try:
            assert watch.look({}).gave_way == 0
        finally:
            watch.close()


@pytest.mark.parametrize("where", ["", "IN DATABASE granted"])
def test_a_role_that_is_to_become_another_when_it_connects(database: Database, where: str) -> None:
    """Sessions of all kinds have the rights of the role that connects, which replicates."""
    database.run(f"GRANT {OWNER} TO {ROLE}", f"ALTER ROLE {ROLE} {where} SET role = {OWNER}")
    assert told(database) == {}
    source, capture = captured(database)
    source.setup(capture)
    assert database.value("SELECT pubowner::regrole::text FROM pg_publication") == ROLE
    database.run("SELECT pg_create_logical_replication_slot('headrace_granted', 'pgoutput')")
    assert source.teardown(capture).statements == ()
    login = {"options": startup_options(session_settings(180_000)), "replication": "database"}
    with psycopg.connect(psycopg.conninfo.make_conninfo(of_role(database), **login)) as stream:
        stream.autocommit = True
        assert stream.execute(b"SELECT current_user").fetchone() == (ROLE,)


def on_login(database: Database, does: str) -> None:
    """Have an event trigger do something to our role's sessions when they begin."""
    database.run(
        "CREATE FUNCTION public.greet() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF session_user = '{ROLE}' THEN {does}; END IF; END $$",
        'CREATE EVENT TRIGGER "greet all" ON login EXECUTE FUNCTION public.greet()',
    )


def test_an_event_trigger_that_lets_our_role_not_in(database: Database) -> None:
    on_login(database, "RAISE EXCEPTION 'not at this hour'")
    _, message, hint = told(database)["SOURCE_UNREACHABLE"]
    assert "not at this hour" in message
    paste(database, database.value(hint.partition("  --")[0]))
    assert told(database) == {}


@pytest.mark.parametrize(
    ("setting", "value"), [("IntervalStyle", "sql_standard"), ("role", OWNER), ("statement_timeout", "70ms")]
)
def test_an_event_trigger_that_gives_sessions_other_settings(
    database: Database, setting: str, value: str
) -> None:
    """Ours have their own all the same; the connector's cannot, and the stream would tell others."""
    database.run(f"GRANT {OWNER} TO {ROLE}")
    on_login(database, f"PERFORM set_config('{setting}', '{value}', false)")
    ours = PostgresSource(of_role(database)).select(f"SELECT current_setting('{setting}') AS it")
    assert ours[0]["it"] != value
    ((code, (severity, message, hint)),) = told(database).items()
    assert (code, severity) == ("SOURCE_LOGIN_TRIGGER", Severity.ERROR)
    assert f"another {setting}" in message
    paste(database, hint)
    assert told(database) == {}


def test_a_role_of_a_provider_that_gives_no_right_here(database: Database) -> None:
    """Members of `rds_replication` may replicate on RDS; here a role of that name means nothing."""
    database.run(f"ALTER ROLE {ROLE} NOREPLICATION", "CREATE ROLE rds_replication")
    try:
        for statement in (f'GRANT rds_replication TO "{ROLE}";', f'ALTER ROLE "{ROLE}" REPLICATION;'):
            _, message, hint = told(database)["SOURCE_REPLICATION_RIGHT"]
            assert "WAL sender" in message
            assert hint == statement
            paste(database, hint)
        assert told(database) == {}
    finally:
        database.run("DROP ROLE rds_replication")


def test_a_role_that_replicates_without_the_attribute(database: Database) -> None:
    """As on RDS: what the catalogue shows of roles there says no, and the server lets it all the same.

    The view is one that shows nobody's attribute; what the server itself goes by is as it was.
    """
    shown = database.value("SELECT pg_get_viewdef('pg_roles'::regclass)")
    hidden = shown.replace("pg_authid.rolreplication", "false AS rolreplication")
    assert hidden != shown
    with psycopg.connect(database.dsn, autocommit=True) as superuser:
        superuser.execute("SET allow_system_table_mods = on")
        superuser.execute(f"CREATE OR REPLACE VIEW pg_catalog.pg_roles AS {hidden}".encode())
    assert not database.value(f"SELECT rolreplication FROM pg_roles WHERE rolname = '{ROLE}'")
    assert told(database) == {}
    database.run(f"ALTER ROLE {ROLE} NOREPLICATION")
    assert told(database).keys() == {"SOURCE_REPLICATION_RIGHT"}
