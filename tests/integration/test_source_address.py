"""What a source is reached by, and what it is read with, whatever stands in the environment or around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from connectors.postgres import PostgresSource, lookup, preflight, watch
from connectors.postgres.address import parameters
from connectors.postgres.session import connect
from connectors.registry import reached, why_unreadable
from headrace.control import source_check
from headrace.control.context import Context
from headrace.model.finding import Severity
from headrace.model.schema import TableId, TableSchema
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack

T = TableId("public", "t")


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "reached") as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)")
        yield made


@pytest.mark.parametrize("way", ["environment", "service"])
def test_what_is_taken_from_the_environment_is_in_the_address(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """The engine, Connect and the next command have another environment, and would ask another server."""
    known = {name: value for name, value in parameters(database.dsn).items() if name != "password"}
    monkeypatch.setenv("PGPASSWORD", parameters(database.dsn)["password"])
    url = "postgres://"
    if way == "environment":
        for variable, name in {"HOST": "host", "PORT": "port", "USER": "user", "DATABASE": "dbname"}.items():
            monkeypatch.setenv(f"PG{variable}", known[name])
    else:
        lines = (f"{name}={value}\n" for name, value in known.items())
        (tmp_path / "services").write_text("[mine]\n" + "".join(lines))
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        url = "postgres:///?service=mine"
    found = parameters(reached(url).address)
    assert found == known


def test_a_domain_over_money_is_no_key_that_can_be_read_anew(database: Database) -> None:
    database.run("CREATE DOMAIN price AS money", "CREATE TABLE priced (p price PRIMARY KEY)")
    (schema,) = PostgresSource(database.dsn).catalogue([TableId("public", "priced")])
    again = TableSchema.from_dict(json.loads(json.dumps(schema.as_dict())))
    assert why_unreadable("postgres", schema) == why_unreadable("postgres", again) == "its key holds money"


@pytest.mark.parametrize("table", ["pg_catalog.pg_class", "headrace.notifications"])
def test_a_table_of_a_schema_that_is_nobodys_is_refused(database: Database, table: str) -> None:
    database.run("CREATE SCHEMA headrace", "CREATE TABLE headrace.notifications (id int PRIMARY KEY)")
    found = PostgresSource(database.dsn).preflight([TableId(*table.split("."))])
    assert "SOURCE_TABLE_KIND" in {one.code for one in found if one.severity is Severity.ERROR}


def test_tables_that_nobody_has_had_the_time_to_look_at_are_named(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run(
        "CREATE TABLE born (id int PRIMARY KEY, at date)", "INSERT INTO born VALUES (1, '0044-03-15 BC')"
    )
    tables = [T, TableId("public", "born")]
    assert "SOURCE_VALUES" in {one.code for one in PostgresSource(database.dsn).preflight(tables)}
    monkeypatch.setattr(preflight, "_GLANCES_S", 0.0)
    found = [one for one in PostgresSource(database.dsn).preflight(tables) if one.severity is not Severity.OK]
    assert {"public.born"} == {str(one.table) for one in found if one.code == "SOURCE_VALUES_UNSEEN"}


def test_our_sessions_take_no_part_in_the_isolation_of_the_application(database: Database) -> None:
    database.run(
        "ALTER DATABASE reached SET default_transaction_isolation = serializable",
        "ALTER DATABASE reached SET default_transaction_deferrable = on",
    )
    (found,) = PostgresSource(database.dsn).select("SHOW transaction_isolation")
    assert found == {"transaction_isolation": "read committed"}
    for settings in (watch._PATIENCE, lookup._SESSION):
        with connect(parameters(database.dsn), settings=settings) as kept:
            assert kept.execute("SHOW transaction_isolation").fetchone() == found
            assert kept.execute("SHOW search_path").fetchone() == {"search_path": "pg_catalog, pg_temp"}


def test_a_worker_that_wants_another_login_is_told_as_that(context: Context, database: Database) -> None:
    parts = urlsplit(context.connect_url)
    wrong = f"{parts.scheme}://{parts.username}:c4nary@{parts.hostname}:{parts.port}"
    found = source_check.check(database.dsn, place=(replace(context, connect_url=wrong), "depot"))
    (told,) = [one for one in found if one.code.startswith("CONNECT")]
    assert told.code == "CONNECT_DENIED"
    assert "c4nary" not in told.message
