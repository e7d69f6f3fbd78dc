"""A source on real servers: checked, added, watched, lost, removed without a trace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from connectors.base import WHILE_AWAY
from connectors.postgres import PostgresSource
from headrace.config.kafka import KafkaAddress
from headrace.config.source import SourceSettings
from headrace.control import lag, source
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry
from headrace.model.errors import SourceError, UsageError
from headrace.model.finding import Severity
from headrace.model.schema import LogicalType, TableId
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import stays, until

pytestmark = pytest.mark.stack

ORDERS = TableId("public", "orders")
SCHEMA = """
CREATE TYPE status AS ENUM ('placed', 'paid');
CREATE DOMAIN price AS numeric(12, 2);
CREATE TABLE orders (
    id bigint PRIMARY KEY, status status NOT NULL, total price, tags text[], amounts numeric[],
    grid int[][], note text, doubled bigint GENERATED ALWAYS AS (id * 2) STORED, spot point
);
CREATE TABLE lines (order_id bigint, line int, PRIMARY KEY (line, order_id));
INSERT INTO orders (id, status, total, tags, note)
    SELECT i, 'placed', i * 1.10, ARRAY['a', NULL], 'n' FROM generate_series(1, 500) i;
INSERT INTO lines SELECT i, 1 FROM generate_series(1, 300) i;
"""
BY_INDEX = """CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL UNIQUE);
ALTER TABLE t REPLICA IDENTITY USING INDEX t_b_key
"""
NAMESAKE = 'CREATE TABLE t (id int PRIMARY KEY, at time[]); CREATE TABLE "time" (id int)'
USERS_NAMESAKE = """
CREATE SCHEMA types; CREATE TYPE types.mood AS ENUM ('sad', 'ok'); CREATE TABLE mood (id int PRIMARY KEY);
CREATE TABLE t (id int PRIMARY KEY, how types.mood)
"""
EXTENSION_NAMESAKE = """
CREATE SCHEMA other; CREATE EXTENSION hstore SCHEMA other; CREATE TABLE hstore (id int);
CREATE TABLE t (id int PRIMARY KEY, more other.hstore)
"""
DROP_SLOT = """
DO $$ BEGIN
  FOR attempt IN 1..500 LOOP
    PERFORM pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE active;
    BEGIN PERFORM pg_drop_replication_slot('headrace_depot'); EXIT;
    EXCEPTION WHEN object_in_use THEN PERFORM pg_sleep(0.01);
    END;
  END LOOP;
END $$
"""
CUT_OFF = "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE active"


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "control_source") as database:
        database.run(*filter(str.strip, SCHEMA.split(";")))
        yield database


@pytest.fixture
def added(context: Context, database: Database) -> Iterator[str]:
    source.add(context, "depot", database.dsn, settings=SourceSettings(heartbeat_ms=300))
    yield "depot"
    if "depot" in (entry.name for entry in Registry(context.registry).sources()):
        source.remove(context, "depot")


def leftovers(context: Context, database: Database, stack: RunningStack) -> dict[str, object]:
    """Return whatever a source may have left anywhere."""
    connectors = httpx.get(f"{context.connect_url}/connectors", timeout=WAIT_S).json()
    topics = {name for name in Kafka(context.kafka_bootstrap).names() if "depot" in name}
    return {
        "connectors": [name for name in connectors if "depot" in name],
        "topics": topics,
        "slots": database.run("SELECT slot_name FROM pg_replication_slots WHERE slot_name ~ 'depot'"),
        "publications": database.run("SELECT pubname FROM pg_publication"),
        "schema": database.run("SELECT 1 FROM pg_namespace WHERE nspname = 'headrace'"),
        "secrets": list(context.secrets.glob("depot*")),
        "registered": [entry.name for entry in Registry(context.registry).sources()],
    }


def test_the_catalogue_says_what_each_column_means(database: Database) -> None:
    (orders, lines) = PostgresSource(database.dsn).catalogue([ORDERS, TableId("public", "lines")])
    meanings = {column.name: (column.type, column.dimensions) for column in orders.columns}
    assert meanings == {
        "id": (LogicalType.INT64, 0),
        "status": (LogicalType.ENUM, 0),
        "total": (LogicalType.NUMERIC, 0),
        "tags": (LogicalType.TEXT, 1),
        "note": (LogicalType.TEXT, 0),
        "doubled": (LogicalType.INT64, 0),
    }
    assert (orders.by_name["total"].precision, orders.by_name["total"].scale) == (12, 2)
    assert orders.extra["excluded"] == ("amounts", "grid", "spot")
    assert [column.name for column in orders.columns if column.computed] == ["doubled"]
    assert lines.key == ("line", "order_id")
    said = {f.code: f for f in PostgresSource(database.dsn).preflight([ORDERS])}
    assert "column doubled (bigint): no record carries" in said["SOURCE_COLUMN_LIMIT"].message
    assert "not mirrored" in said["SOURCE_COLUMN_TYPE"].message
    assert "amounts (numeric[])" in said["SOURCE_COLUMN_UNCHANGED"].message
    assert said["SOURCE_COLUMN_UNCHANGED"].hint == ""
    database.run("ALTER TABLE orders DROP doubled")
    said = {f.code: f for f in PostgresSource(database.dsn).preflight([ORDERS])}
    database.run(said["SOURCE_COLUMN_UNCHANGED"].hint)
    (orders,) = PostgresSource(database.dsn).catalogue([ORDERS])
    assert (orders.by_name["amounts"].type, orders.by_name["amounts"].dimensions) == (LogicalType.NUMERIC, 1)
    said = {f.code: f for f in PostgresSource(database.dsn).preflight([ORDERS])}
    assert "amounts (numeric[])" in said["SOURCE_COLUMN_LIMIT"].message


@pytest.mark.parametrize(
    ("ddl", "code", "mended"),
    [
        ("CREATE TABLE t (a int)", "SOURCE_NO_PRIMARY_KEY", True),
        ("CREATE TABLE t (a int NOT NULL UNIQUE)", "SOURCE_NO_PRIMARY_KEY", True),
        ("CREATE TABLE t (a int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING",
         "SOURCE_IDENTITY_NOTHING", True),
        ("CREATE UNLOGGED TABLE t (a int PRIMARY KEY)", "SOURCE_TABLE_UNLOGGED", True),
        ("CREATE TABLE t (a int PRIMARY KEY DEFERRABLE); ALTER TABLE t REPLICA IDENTITY FULL",
         "SOURCE_KEY_DEFERRABLE", False),
        (BY_INDEX, "SOURCE_IDENTITY_INDEX", True),
        ("CREATE VIEW t AS SELECT 1 AS a", "SOURCE_TABLE_KIND", False),
        ("CREATE TABLE p (a int PRIMARY KEY) PARTITION BY LIST (a); CREATE TABLE t PARTITION OF p DEFAULT",
         "SOURCE_TABLE_PARTITION", False),
        ('CREATE TABLE t (id int PRIMARY KEY, "Ä" text, "ä" text)', "SOURCE_COLUMN_CASE", True),
        (NAMESAKE, "SOURCE_TYPE_NAMESAKE", False),
        (USERS_NAMESAKE, "SOURCE_TYPE_NAMESAKE", False),
        (EXTENSION_NAMESAKE, "SOURCE_TYPE_NAMESAKE", False),
        ("CREATE TYPE pair AS (x int, y int); CREATE TABLE t (k pair PRIMARY KEY)", "SOURCE_KEY_TYPE", False),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_followed_is_refused_with_what_mends_it(
    database: Database, ddl: str, code: str, mended: bool
) -> None:
    database.run(*ddl.split(";"))
    table = TableId("public", "t")

    def errors() -> dict[str, str]:
        found = PostgresSource(database.dsn).preflight([table])
        return {f.code: f.hint for f in found if f.severity is Severity.ERROR}

    assert set(errors()) == {code}
    if mended:
        database.run(errors()[code])
        assert errors() == {}


def test_a_role_without_rights_is_told_each_of_them(database: Database, stack: RunningStack) -> None:
    database.run(
        "DROP ROLE IF EXISTS weak",
        "CREATE ROLE weak LOGIN PASSWORD 'w'",
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
    )
    try:
        dsn = database.dsn.replace(stack.endpoints.postgres_dsn.partition("@")[0], "postgresql://weak:w")
        found = PostgresSource(dsn).preflight([ORDERS])
        codes = {finding.code for finding in found if finding.severity is Severity.ERROR}
        assert codes == {
            "SOURCE_REPLICATION_RIGHT",
            "SOURCE_CREATE_RIGHT",
            "SOURCE_TABLE_OWNER",
            "SOURCE_SELECT_RIGHT",
            "SOURCE_ROW_SECURITY",
        }
    finally:
        database.run("DROP ROLE weak")


def test_a_source_streams_and_shows_its_password_nowhere(
    context: Context, database: Database, added: str, stack: RunningStack
) -> None:
    kafka = Kafka(context.kafka_bootstrap)
    topic = "depot.public.orders"
    snapshot = [value for value in kafka.committed(topic)[0] if value["op"] == "r"]
    assert len(snapshot) == 500
    assert "doubled" not in snapshot[0]["after"]
    database.run("UPDATE orders SET note = 'x' WHERE id = 7", "TRUNCATE lines")
    until(lambda: kafka.tail(topic, 1)[0]["op"] == "u")
    assert kafka.tail(topic, 1)[0]["after"]["note"] == "x"
    until(lambda: kafka.tail("depot.public.lines", 1)[0]["op"] == "t")

    (seen,) = lag.measure(context).sources
    assert seen.state is lag.State.STREAMING
    assert seen.heartbeat_seconds is not None
    assert seen.heartbeat_seconds < 5

    password = stack.endpoints.postgres_dsn.split(":")[2].partition("@")[0]
    config = httpx.get(f"{context.connect_url}/connectors/headrace_depot/config", timeout=WAIT_S).text
    assert password not in config + str(kafka.committed("headrace-connect-config"))

    def absent() -> bool:  # asked of another process: this one would lose its locks with closing the registry
        files = [*context.registry.parent.glob("registry.db*"), *stack.home.logs.rglob("*.log")]
        return subprocess.run(["grep", "-qF", "-e", password, *files], check=False).returncode == 1

    until(absent)


def test_the_first_records_are_found_again_and_again(context: Context, added: str) -> None:
    kafka = Kafka(context.kafka_bootstrap)
    orders, lines = ("depot.public.orders", 0), ("depot.public.lines", 0)
    ends = {place: after for place, (_, after) in kafka.ends([orders[0], lines[0]]).items()}
    for _ in range(5):
        found = kafka.firsts({orders: 0, lines: 0})
        assert {place: record["source"]["table"] for place, record in found.items()} == {
            orders: "orders",
            lines: "lines",
        }
        assert kafka.firsts({orders: 0, lines: ends[lines]}).keys() == {orders}


def test_an_idle_source_lets_its_slot_advance(context: Context, added: str) -> None:
    def confirmed() -> int:
        return lag.measure(context).sources[0].slot_lag_bytes or 0

    # Registering it wrote more than this; nothing but heartbeats can let the slot pass that.
    until(lambda: confirmed() < 16 * 1024, why=confirmed)


def test_a_second_source_of_the_name_is_refused(context: Context, database: Database, added: str) -> None:
    with pytest.raises(UsageError) as caught:
        source.add(context, "depot", database.dsn)
    assert (caught.value.code, caught.value.hint) == ("SOURCE_EXISTS", "headrace source show depot")
    assert "depot" in carry_out(caught.value.hint, context.registry.parent, database.run)


def test_removed_and_added_again_it_starts_anew_under_a_higher_epoch(
    context: Context, database: Database, added: str, stack: RunningStack
) -> None:
    before = Registry(context.registry).source("depot").tables[0].epoch
    carry_out("headrace source remove depot", context.registry.parent, database.run)
    assert not any(leftovers(context, database, stack).values())
    database.run("DELETE FROM orders WHERE id > 400")
    source.add(context, "depot", database.dsn)
    entry = Registry(context.registry).source("depot")
    assert entry.tables[0].epoch > before
    rows, _ = Kafka(context.kafka_bootstrap).committed("depot.public.orders")
    assert sorted(row["after"]["id"] for row in rows) == list(range(1, 401))


@pytest.mark.deep
def test_a_connector_that_a_killed_command_left_is_replaced(
    context: Context, database: Database, added: str, stack: RunningStack
) -> None:
    with Registry(context.registry).begin() as session:
        session.delete(session.get(SourceEntry, "depot"))
    database.run("DELETE FROM orders WHERE id > 100")
    source.add(context, "depot", database.dsn)
    rows, _ = Kafka(context.kafka_bootstrap).committed("depot.public.orders")
    assert [row["op"] for row in rows] == ["r"] * 100


def test_a_connector_of_somebody_else_is_left_alone(
    context: Context,
    database: Database,
    added: str,
    stack: RunningStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "_FORGETS_S", 1.0)  # nobody is removing it
    registry = Registry(context.registry)
    entry = registry.source("depot")
    with registry.begin() as session:
        session.delete(session.get(SourceEntry, "depot"))
    with pytest.raises(SourceError) as caught:
        source.add(replace(context, secrets=context.secrets / "other"), "depot", database.dsn)
    assert caught.value.code == "CONNECTOR_EXISTS"
    with Connect(context.connect_url) as connect:
        assert connect.state("headrace_depot").running
    with registry.begin() as session:
        session.merge(entry)


def test_when_the_connector_is_refused_nothing_is_left(
    context: Context, database: Database, stack: RunningStack, tmp_path: Path
) -> None:
    outside = replace(context, secrets=tmp_path / "not-allowed")
    with pytest.raises(SourceError) as caught:
        source.add(outside, "depot", database.dsn)
    assert caught.value.code == "CONNECTOR_REFUSED"
    assert not any(leftovers(context, database, stack).values())
    assert not list((tmp_path / "not-allowed").glob("*"))


def test_topics_of_somebody_else_are_not_taken_over(
    context: Context, database: Database, stack: RunningStack
) -> None:
    from confluent_kafka import Producer

    from headrace.control.kafka import Topic

    kafka = Kafka(context.kafka_bootstrap)
    kafka.create([Topic("depot.public.orders", 1, {})])
    try:
        producer = Producer({**KafkaAddress.parse(context.kafka_bootstrap).librdkafka()})
        producer.produce("depot.public.orders", b"{}")
        assert producer.flush(30) == 0
        with pytest.raises(SourceError) as caught:
            source.add(context, "depot", database.dsn)
        assert caught.value.code == "SOURCE_TOPICS_EXIST"
    finally:
        kafka.delete(["depot.public.orders"])
    assert not any(leftovers(context, database, stack).values())


def test_pause_and_resume_are_told(context: Context, database: Database, added: str) -> None:
    database.run("ALTER SYSTEM SET idle_replication_slot_timeout = '1d'", "SELECT pg_reload_conf()")
    try:
        until(lambda: database.value("SHOW idle_replication_slot_timeout") == "1d")
        said = {found.code: found for found in source.pause(context, "depot")}
    finally:
        database.run("ALTER SYSTEM RESET idle_replication_slot_timeout", "SELECT pg_reload_conf()")
    assert said.keys() <= WHILE_AWAY
    assert "86400 s: when the connector is paused" in said["SOURCE_SLOT_IDLE"].message
    until(lambda: lag.measure(context).sources[0].state is lag.State.PAUSED)
    database.run("INSERT INTO orders (id, status) VALUES (9001, 'paid')")
    told = lag.measure(context).sources[0].remedy
    assert told == "headrace source resume depot"
    carry_out(told, context.registry.parent, database.run)
    kafka = Kafka(context.kafka_bootstrap)
    until(lambda: kafka.tail("depot.public.orders", 1)[0]["after"]["id"] == 9001)
    until(lambda: lag.measure(context).sources[0].state is lag.State.STREAMING)


def test_a_lost_slot_is_said_to_be_lost_even_when_somebody_makes_it_anew(
    context: Context, database: Database, added: str
) -> None:
    database.run(DROP_SLOT, "INSERT INTO orders (id, status) VALUES (9002, 'paid')")
    until(lambda: lag.measure(context).sources[0].state is lag.State.RESYNC_REQUIRED)
    database.run("SELECT pg_create_logical_replication_slot('headrace_depot', 'pgoutput')")
    with pytest.raises(SourceError) as caught:
        source.resume(context, "depot")
    assert caught.value.code == "SOURCE_GAP"
    stays(lambda: lag.measure(context).sources[0].state is lag.State.RESYNC_REQUIRED, 2.5)


def test_a_slot_that_was_moved_on_while_we_paused_is_noticed(
    context: Context, database: Database, added: str
) -> None:
    source.pause(context, "depot")
    httpx.put(f"{context.connect_url}/connectors/headrace_depot/stop", timeout=WAIT_S).raise_for_status()
    until(lambda: not database.value("SELECT active FROM pg_replication_slots"))
    assert lag.measure(context).sources[0].state is lag.State.PAUSED
    database.run(
        "INSERT INTO orders (id, status) VALUES (9003, 'paid')",
        "SELECT pg_replication_slot_advance('headrace_depot', pg_current_wal_lsn())",
    )
    with pytest.raises(SourceError, match="moved past") as caught:
        source.resume(context, "depot")
    assert caught.value.code == "SOURCE_GAP"
    assert lag.measure(context).sources[0].state is lag.State.RESYNC_REQUIRED


@pytest.mark.deep
def test_the_connector_comes_back_by_itself_after_its_connection_was_cut(
    context: Context, database: Database, added: str
) -> None:
    for row in range(3):
        database.run(CUT_OFF, f"INSERT INTO orders (id, status) VALUES ({9100 + row}, 'paid')")
    kafka = Kafka(context.kafka_bootstrap)

    def arrived() -> set[int]:
        return {value["after"]["id"] for value in kafka.tail("depot.public.orders", 20) if value["after"]}

    until(lambda: {9100, 9101, 9102} <= arrived())
    until(lambda: lag.measure(context).sources[0].state is lag.State.STREAMING)


def test_lag_is_json_and_the_command_line_says_the_same(
    context: Context, added: str, stack: RunningStack
) -> None:
    from typer.testing import CliRunner

    from headrace.cli.main import app

    result = CliRunner().invoke(app, ["source", "show", "depot", "--json", "--home", str(stack.home.root)])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["state"] == "streaming"
    assert set(shown["tables"]) == {"public.orders", "public.lines"}
    assert shown["tables"]["public.lines"]["key"] == ["line", "order_id"]
