"""The connector's own sessions: what their settings keep whole, and a slot that is taken from them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from connectors.postgres import PostgresSource, pulse
from connectors.postgres.fence import first_statements
from headrace.config.source import SourceSettings
from headrace.control import lag, source
from headrace.control.capture import capture_of, source_of
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry
from headrace.control.runner import ensure_engine
from headrace.control.runs.repository import topics_of
from headrace.control.runs.start import plan, start, wait
from headrace.model.errors import SourceError
from headrace.model.finding import Finding
from headrace.model.key import Key
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.locales import write_dutch_money
from tests.support.servers import postgres_server
from tests.support.stack import RunningStack
from tests.support.waiting import until
from tests.support.wire import wire

pytestmark = pytest.mark.stack

NAME = "sessions"
SLOT = f"headrace_{NAME}"


@contextmanager
def added(context: Context, database: Database, **settings: Any) -> Iterator[SourceEntry]:
    """Register the database while the block runs."""
    entry = source.add(context, NAME, database.dsn, settings=SourceSettings(heartbeat_ms=300, **settings))
    try:
        yield entry
    finally:
        source.remove(context, NAME)


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "source_sessions") as made:
        yield made


def test_intervals_arrive_whole_in_any_style(context: Context, database: Database) -> None:
    long = "'1 year 2 mons 3 days 04:05:06'"
    database.run(
        "ALTER DATABASE source_sessions SET IntervalStyle = 'sql_standard'",
        "CREATE TABLE spans (id int PRIMARY KEY, span interval)",
        f"INSERT INTO spans VALUES (1, {long})",
    )
    spans = TableId("public", "spans")
    with added(context, database) as entry:
        database.run(f"INSERT INTO spans VALUES (2, {long})")
        kafka = Kafka(context.kafka_bootstrap)
        source_of(context, entry).request_snapshot(capture_of(context, entry), [spans], "anew")
        until(lambda: len(kafka.committed(f"{NAME}.public.spans")[0]) >= 4)
        told, _ = kafka.committed(f"{NAME}.public.spans")
        assert {(value["op"], value["after"]["span"]) for value in told} == {
            ("r", "P1Y2M3DT4H5M6S"),
            ("c", "P1Y2M3DT4H5M6S"),
        }


@pytest.fixture
def locales() -> Iterator[Path]:
    """A directory that the account of a Postgres server may read."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="headrace-test-") as made:
        yield Path(made)


def test_money_is_the_same_amount_in_any_country(context: Context, locales: Path) -> None:
    amounts = {1: "1234.56", 2: "-12.30", 3: "0.05"}
    locale = write_dutch_money(locales)
    with postgres_server(17, locales=locales) as dsn, fresh_database(dsn, "source_sessions") as database:
        database.run(
            f"ALTER DATABASE source_sessions SET lc_monetary = '{locale}'",
            "CREATE TABLE prices (id int PRIMARY KEY, price money)",
            "INSERT INTO prices VALUES (1, 1234.56::numeric::money)",
        )
        assert database.value("SELECT price::text FROM prices") == "€ 1.234,56"
        with added(context, database) as entry:
            for number in (2, 3):
                database.run(f"INSERT INTO prices VALUES ({number}, ({amounts[number]})::numeric::money)")
            kafka = Kafka(context.kafka_bootstrap)
            topic = entry.tables[0].topic
            until(lambda: len(kafka.committed(topic)[0]) == len(amounts))
            told = {value["after"]["id"]: value["after"]["price"] for value in kafka.committed(topic)[0]}
            assert told == amounts


def test_a_row_is_looked_up_by_the_same_money_in_any_country(locales: Path) -> None:
    locale = write_dutch_money(locales)
    with postgres_server(17, locales=locales) as dsn, fresh_database(dsn, "source_sessions") as database:
        database.run(
            f"ALTER DATABASE source_sessions SET lc_monetary = '{locale}'",
            "CREATE TABLE t (k money PRIMARY KEY, n text, g text GENERATED ALWAYS AS (n) STORED)",
            "INSERT INTO t VALUES (1::numeric::money, 'one'), (100::numeric::money, 'a hundred')",
        )
        with closing(PostgresSource(database.dsn)) as source:
            (schema,) = source.catalogue([TableId("public", "t")])
            key = Key.of(["1.00"])
            assert source.lookup(schema, [key], ["g"], ()) == {key: {"g": "one"}}


def test_a_column_that_is_gone_ends_no_lookup_where_errors_end_sessions() -> None:
    with postgres_server(17) as dsn, fresh_database(dsn, "source_sessions") as database:
        database.run(
            "ALTER DATABASE source_sessions SET exit_on_error = on",
            "CREATE TABLE t (id int PRIMARY KEY, a int GENERATED ALWAYS AS (id) STORED,"
            " b int GENERATED ALWAYS AS (id) STORED)",
            "INSERT INTO t VALUES (1)",
        )
        with closing(PostgresSource(database.dsn)) as source:
            (schema,) = source.catalogue([TableId("public", "t")])
            database.run("ALTER TABLE t DROP a")
            key = Key.of(["1"])
            assert source.lookup(schema, [key], ["a", "b"], ()) == {key: {"b": 1}}


def test_a_slot_that_is_made_anew_before_anybody_looks_is_noticed(
    context: Context, database: Database
) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY)")

    def dropped() -> bool:
        try:
            database.run(
                "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE active",
                f"SELECT pg_drop_replication_slot('{SLOT}')",
            )
        except psycopg.errors.ObjectInUse:
            return False
        return True

    with added(context, database):
        until(dropped)
        database.run(
            "INSERT INTO t VALUES (1)", f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')"
        )
        until(lambda: lag.measure(context).sources[0].state is lag.State.RESYNC_REQUIRED)
        assert Registry(context.registry).source(NAME).gap


@pytest.mark.deep
def test_a_database_that_is_far_away_is_not_taken_for_a_slow_one(database: Database) -> None:
    with psycopg.connect(database.dsn) as known:
        host, port = known.info.host, known.info.port
    with wire(host, port) as line:
        line.far_s = 2.0
        way = psycopg.conninfo.make_conninfo(database.dsn, host="127.0.0.1", port=line.port)
        with closing(PostgresSource(way)) as source:
            took = [source.answer_seconds() for _ in range(3)]
            assert (line.connections, [second for second in took if second > line.far_s]) == (1, [])
            database.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname ="
                " current_database() AND pid <> pg_backend_pid()"
            )
            with pytest.raises(SourceError) as away:
                source.answer_seconds()
            line.far_s = 0.0
            assert (away.value.code, source.answer_seconds() > 0) == ("SOURCE_UNREACHABLE", True)


def test_who_measures_a_database_that_hangs_is_told_so_soon(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pause and abort of a run wait for the answer."""
    monkeypatch.setattr(pulse, "_LONGEST_S", 1)
    with psycopg.connect(database.dsn) as other, closing(PostgresSource(database.dsn)) as source:
        other.execute("LOCK TABLE pg_publication IN ACCESS EXCLUSIVE MODE")
        assert source.answer_seconds() >= 1
        other.rollback()
        assert source.answer_seconds() > 0


@pytest.mark.deep
def test_the_last_key_is_read_however_many_threads_read(context: Context, database: Database) -> None:
    database.run(
        "CREATE TABLE slots (room int, at time, PRIMARY KEY (room, at))",
        "INSERT INTO slots SELECT 1, make_interval(secs => i)::time FROM generate_series(1, 500) i",
        "INSERT INTO slots VALUES (2, '23:59:59.999999'), (2, '24:00:00')",
    )
    with added(context, database, snapshot_threads=4) as entry:
        told, _ = Kafka(context.kafka_bootstrap).committed(entry.tables[0].topic)
        assert len({(value["after"]["room"], value["after"]["at"]) for value in told}) == 502


@pytest.mark.deep
def test_what_cannot_be_read_anew_right_is_refused_and_left_out_of_a_run_of_the_whole_source(
    context: Context, database: Database
) -> None:
    database.run(
        "CREATE TABLE births (id int PRIMARY KEY, at date)",
        "CREATE TABLE gone (id int PRIMARY KEY)",
        "CREATE TABLE others (id int PRIMARY KEY)",
    )
    with added(context, database):
        database.run("INSERT INTO births VALUES (1, '2000-03-15 BC')", "DROP TABLE gone")
        ensure_engine(context)
        told = plan(context, NAME)
        assert set(told.tables) == {"public.others"}
        assert set(told.left_out) == {"public.births", "public.gone"}
        whole = wait(context, start(context, NAME).id)
        assert topics_of(whole) == {f"{NAME}.public.others"}
        assert "column at holds a date" in whole.plan["left_out"]["public.births"]
        assert f"headrace source tables remove {NAME} public.gone" in whole.plan["left_out"]["public.gone"]
        run = start(context, NAME, tables=[TableId("public", "births")])
        with pytest.raises(SourceError) as refused:
            wait(context, run.id)
        assert refused.value.code == "SOURCE_VALUES"


@pytest.mark.parametrize("names", ["far", "far, near"])
def test_standbys_that_the_connector_would_wait_for(names: str) -> None:
    with postgres_server(18) as dsn, fresh_database(dsn, "source_sessions") as database:
        there, tables = PostgresSource(database.dsn), [TableId("public", "t")]

        def told() -> dict[str, Finding]:
            return {one.code: one for one in there.preflight(tables)}

        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        for name in names.split(", "):
            database.run(f"SELECT pg_create_physical_replication_slot('{name}')")
        database.run(f"ALTER SYSTEM SET synchronized_standby_slots = '{names}'", "SELECT pg_reload_conf()")
        until(lambda: "SOURCE_STANDBY_SLOTS" in told())
        found = told()["SOURCE_STANDBY_SLOTS"]
        assert names in found.message
        database.run(*found.hint.rstrip(";").split("; "))
        until(lambda: "SOURCE_STANDBY_SLOTS" not in told())


def test_a_session_of_the_connector_fails_anywhere_else() -> None:
    """Whatever has led it there, before it has read anything."""
    others: list[dict[str, Any]] = [
        {"database": "another"},
        {"database": 'na"me; é'},
        {"timeline": 7},
        {"system": "1"},
    ]
    with postgres_server(18) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        told = connection.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
        (system,) = told or ("",)
        home: dict[str, Any] = {"database": connection.info.dbname, "timeline": 1, "system": system}

        def begin(place: dict[str, Any]) -> None:
            for statement in first_statements("headrace_shop", **place).split(";"):
                connection.execute(statement.encode())

        begin(home)
        begin({**home, "timeline": None, "system": None})
        for other in others:
            with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="Headrace"):
                begin({**home, **other})
