"""Tables without a usable primary key: a unique key is declared, checked, remembered and shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from connectors.postgres import PostgresSource
from headrace.cli.main import app
from headrace.control import lag
from headrace.control.kafka import Kafka
from headrace.control.lag import State
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.mirror import Mirror, mirrored
from tests.support.remedy import steps
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

T = TableId("public", "t")
UNIQUE = "CREATE TABLE t (a int NOT NULL, b text NOT NULL, n int, UNIQUE (b, a))"
IDENTIFIED = f"{UNIQUE}; ALTER TABLE t REPLICA IDENTITY USING INDEX t_b_a_key"


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "declared_keys") as database:
        yield database


@pytest.fixture
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    kept = "CREATE TABLE kept (id int PRIMARY KEY, amounts numeric[], tags text[])"
    statements = (*IDENTIFIED.split(";"), kept, "ALTER TABLE kept REPLICA IDENTITY FULL")
    with mirrored(stack, "identity", *statements, keys={T: ("a", "b")}) as made:
        yield made


def run(stack: RunningStack, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*arguments, "--json", "--home", str(stack.home.root)])
    assert done.exit_code == code, done.output
    said: dict[str, Any] = json.loads(done.output.splitlines()[-1])
    return said


def errors(database: Database) -> dict[str, str]:
    found = PostgresSource(database.dsn).preflight([T], {T: ("a", "b")})
    return {f.code: f.hint for f in found if f.severity is Severity.ERROR}


@pytest.mark.parametrize(
    ("ddl", "codes"),
    [
        (IDENTIFIED, []),
        (f"{UNIQUE}; ALTER TABLE t REPLICA IDENTITY FULL", []),
        (UNIQUE, ["SOURCE_IDENTITY_DEFAULT"]),
        (f"{UNIQUE}; ALTER TABLE t REPLICA IDENTITY NOTHING", ["SOURCE_IDENTITY_NOTHING"]),
        (f"{UNIQUE}; ALTER TABLE t ADD UNIQUE (a); ALTER TABLE t REPLICA IDENTITY USING INDEX t_a_key",
         ["SOURCE_IDENTITY_INDEX"]),
        (f"{UNIQUE}; ALTER TABLE t ADD PRIMARY KEY (a) DEFERRABLE", ["SOURCE_IDENTITY_DEFAULT"]),
        ("CREATE TABLE t (a int, b text NOT NULL, UNIQUE (a, b)); ALTER TABLE t REPLICA IDENTITY FULL",
         ["SOURCE_KEY_UNFIT"]),
        ("CREATE TABLE t (a int NOT NULL, b text NOT NULL, UNIQUE (a, b) DEFERRABLE)",
         ["SOURCE_KEY_UNFIT", "SOURCE_IDENTITY_DEFAULT"]),
        ("CREATE TABLE t (a int NOT NULL, b text NOT NULL); CREATE UNIQUE INDEX ON t (a, b) WHERE a > 0",
         ["SOURCE_KEY_UNFIT", "SOURCE_IDENTITY_DEFAULT"]),
        ("CREATE TABLE t (a int NOT NULL, b text NOT NULL UNIQUE); CREATE INDEX ON t (a, b)",
         ["SOURCE_KEY_UNFIT", "SOURCE_IDENTITY_DEFAULT"]),
    ],
)  # fmt: skip
def test_a_key_that_does_not_identify_rows_is_refused_until_it_does(
    database: Database, ddl: str, codes: list[str]
) -> None:
    database.run(*ddl.split(";"))
    for code in codes:
        assert list(errors(database)) == [code]
        database.paste(errors(database)[code])
    assert errors(database) == {}


@pytest.mark.parametrize("ddl", ["CREATE TABLE t (a int)", f"{UNIQUE} PARTITION BY LIST (a)"])
def test_a_key_that_no_sql_mends_is_refused(database: Database, ddl: str) -> None:
    database.run(ddl)
    assert errors(database) == {"SOURCE_KEY_UNFIT": ""}


def test_a_declared_key_is_used_shown_and_kept(database: Database, stack: RunningStack) -> None:
    """Its time is that of a registration, of columns that are followed, and of a removal."""
    database.run(*IDENTIFIED.split(";"), "INSERT INTO t VALUES (1, 'x', 1)")
    refused = run(stack, "source", "add", "keyless", database.dsn, code=1)["error"]
    assert refused["code"] == "SOURCE_NO_PRIMARY_KEY"
    assert "--key" in refused["hint"]
    for key, code in {"t": "SOURCE_KEY_INVALID", "public.u=a": "SOURCE_KEY_UNMEANT"}.items():
        said = run(stack, "source", "add", "keyless", database.dsn, "--key", key, code=2)["error"]
        assert said["code"] == code
    assert run(stack, "source", "check", database.dsn, "--key", "t=a,b")["fit"]
    database.run("ALTER TABLE t ADD COLUMN spot point")
    words = ["source", "add", "keyless", database.dsn, "--key", "public.t=a,b", "--heartbeat-ms", "300"]
    added = run(stack, *words)
    try:
        (left_out,) = [told for told in added["findings"] if told["code"] == "SOURCE_COLUMN_TYPE"]
        assert "spot" in left_out["message"]
        shown = run(stack, "source", "show", "keyless")["tables"]["public.t"]
        assert (shown["key"], shown["key_declared"]) == (["a", "b"], True)
        database.run("ALTER TABLE t ADD COLUMN later int", "UPDATE t SET a = 2, n = 2")
        (changed,) = run(stack, "source", "refresh", "keyless")["changed"]
        assert (changed["table"], changed["added"]) == ("public.t", ["later"])
        assert run(stack, "source", "show", "keyless")["tables"]["public.t"]["key_declared"]
        kafka = Kafka(stack.endpoints.kafka_bootstrap)
        until(lambda: [v["op"] for v in kafka.tail("keyless.public.t", 4)] == ["r", "d", "c", "r"])
    finally:
        run(stack, "source", "remove", "keyless")


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_a_replica_identity_that_is_taken_away_is_said_and_mended_as_it_is_told(mirror: Mirror) -> None:
    def told(table: str) -> list[tuple[State, str, str]]:
        found = lag.measure(mirror.context).tables
        return [(one.state, one.reason, one.remedy) for one in found if one.table == f"public.{table}"]

    mirror.settle()
    mirror.database.run("ALTER TABLE t REPLICA IDENTITY DEFAULT", "ALTER TABLE kept REPLICA IDENTITY DEFAULT")
    until(lambda: {state for state, _, _ in told("t") + told("kept")} == {State.RESYNC_REQUIRED})
    assert all("large values of amounts" in reason for _, reason, _ in told("kept"))
    # The application goes on: what cannot be told any more is not published.
    mirror.database.run("INSERT INTO t VALUES (1, 'x', 1)")
    until(lambda: not mirror.database.run("SELECT 1 FROM pg_publication_tables WHERE tablename = 't'"))
    mirror.database.run("UPDATE t SET n = 2")
    for table in ("kept", "t"):
        (remedy,) = {remedy for _, _, remedy in told(table)}
        statement, command = steps(remedy)
        mirror.database.paste(statement)
        run(mirror.stack, *command)
    mirror.settle()
    rows = mirror.stored("t")
    assert [[row["n"] for row in found.values()] for found in rows.values()] == [[2], [2], [2]]
