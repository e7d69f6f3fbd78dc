"""Whatever role or database have set, before a source is added or while it streams: values are the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from redis import Redis

from headrace.cli.context import open_context
from headrace.config.source import SourceSettings
from headrace.control import sink, source
from headrace.control.context import Context
from headrace.control.opened import opened_sink
from headrace.control.registry import Registry
from headrace.control.runner import stop_engine
from headrace.control.runs import start as runs
from tests.support.database import Database, fresh_database
from tests.support.locales import write_dutch
from tests.support.mirror import KINDS, store_settings
from tests.support.servers import postgres_server
from tests.support.stack import RunningStack, running_stack
from tests.support.waiting import settle

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "fussy"
SETTINGS = {
    "bytea_output": "escape",
    "IntervalStyle": "sql_standard",
    "DateStyle": "SQL, DMY",
    "TimeZone": "America/New_York",
    "extra_float_digits": "-15",
    "lc_monetary": "nl_NL.utf8",
    "lc_numeric": "nl_NL.utf8",
    "lc_time": "nl_NL.utf8",
    "lc_messages": "nl_NL.utf8",
    "quote_all_identifiers": "on",
    "array_nulls": "off",
    "xmlbinary": "hex",
    "standard_conforming_strings": "off",
    "xmloption": "document",
    "transform_null_equals": "on",
    "search_path": "nowhere",
    "client_encoding": "LATIN1",
    "row_security": "off",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "statement_timeout": "40ms",
    "lock_timeout": "5ms",
    "idle_in_transaction_session_timeout": "300ms",
    "idle_session_timeout": "300ms",
    "transaction_timeout": "300ms",
    "tcp_user_timeout": "1000",
    "work_mem": "64kB",
    "jit": "off",
    "exit_on_error": "on",
    "role": "guest",
    "session_replication_role": "replica",
    "synchronous_commit": "off",
    "wal_sender_timeout": "300ms",
}
COLUMNS = {
    "raw": ("bytea", r"'\x00ff10275c'"),
    "raws": ("bytea[]", r"ARRAY['\x00ff10'::bytea, NULL]"),
    "span": ("interval", "'1 year -2 mons 3 days -04:05:06.789012'"),
    "spans": ("interval[]", "ARRAY['1 year 2 mons'::interval, '-3 days']"),
    "day": ("date", "'0044-03-15'"),
    "first": ("date", "'0001-01-01'"),
    "endless": ("date", "'infinity'"),
    "antique": ("timestamp", "'0044-03-15 12:00 BC'"),
    "never": ("timestamp", "'-infinity'"),
    "ancient": ("timestamptz", "'0044-03-15 12:00+00 BC'"),
    "forever": ("timestamptz", "'infinity'"),
    "jumped": ("date", "'2011-12-30'"),
    "noon": ("timestamp", "'2011-12-30 12:00'"),
    "at": ("timestamp", "'2024-03-10 02:30'"),
    "ats": ("timestamp[]", "ARRAY['2024-03-10 02:30'::timestamp, NULL]"),
    "instant": ("timestamptz", "'2024-11-03 01:30:00.123456-05'"),
    "instants": ("timestamptz[]", "ARRAY['2024-11-03 01:30-05'::timestamptz, '1999-12-31 23:59:59+14']"),
    "clock": ("time", "'24:00'"),
    "single": ("real", "0.1::real / 3"),
    "double": ("double precision", "123456789.12345679 / 3"),
    "doubles": ("double precision[]", "ARRAY[0.1::float8 + 0.2, 'NaN', '-Infinity']"),
    "exact": ("numeric", "12345678901234567890.000000000012345"),
    "price": ("money", "1234.56::numeric::money"),
    "words": ("text[]", "ARRAY['NULL', NULL, 'a\"b', '{}', 'ü€']"),
    "text": ("text", "E'ü€ \\\\ '' \\n'"),
    "shape": ("jsonb", '\'{"a": [1, null, 1.10], "ü": "€"}\''),
    "markup": ("xml", "'<a>ü</a>'"),
    "bits": ("bit varying", "B'0101'"),
    "net": ("inet", "'10.0.0.1/8'"),
    "range": ("tstzrange", "'[2024-03-10 06:00+00, 2024-03-10 08:00+00)'"),
    "spot": ("point", "point(0.1, 1e-7)"),
    "label": ("kind", "'ü'"),
    "pairs": ("hstore", '\'a=>1, "b c"=>NULL, "ü"=>"€"\''),
    "handle": ("citext", "'Ab Ü'"),
    "way": ("ltree", "'top.middle.leaf'"),
    "stay": ("daterange", "'[2024-03-10, 2024-03-12)'"),
    "amounts": ("numeric[]", "ARRAY[1.10, NULL, 12345678901234567890.123]"),
    "unsure": ("numeric[]", "ARRAY['NaN', 0.50]::numeric[]"),  # from here on they are looked up
    "ways": ("ltree[]", "ARRAY['a.b', NULL]::ltree[]"),
    "always": ("interval", "'infinity'"),
}
LATER = {
    "caesar": ("date", "'0044-03-15 BC'"),
    "skipped": ("date", "'1582-10-10'"),
}
"""Values that are refused in a table that is to be added, and may come later."""
COMPUTED = {
    "twice": ("double precision", '"double" * 2 / 7'),
    "raw2": ("bytea", '"raw" || "raw"'),
    "sooner": ("date", '"day" - 1'),
    "later": ("timestamp", "\"noon\" + interval '1 day 00:00:00.000001'"),
    "week": ("daterange", 'daterange("day", "day" + 7)'),
    "sums": ("numeric[]", "ARRAY[\"exact\", 'NaN'::numeric]"),
    "part": ("jsonb", "\"shape\" -> 'a'"),
    "nick": ("citext", '"handle"'),
    "top": ("ltree", 'subpath("way", 0, 1)'),
}
"""What the database computes, and stores; no record carries it."""
NOT_MIRRORED = {"bits", "spans", "spot"}
"""`source check` names them."""
NAMES = (COLUMNS | LATER | COMPUTED).keys()
TABLE = ", ".join(
    [
        *(f'"{name}" {kind}' for name, (kind, _) in (COLUMNS | LATER).items()),
        *(f'"{name}" {kind} GENERATED ALWAYS AS ({told}) STORED' for name, (kind, told) in COMPUTED.items()),
    ]
)
ROW = ", ".join(value for _, value in COLUMNS.values())
WHOLE = ", ".join((ROW, *(value for _, value in LATER.values())))

OURS = (
    "SET role = none",
    "SET default_transaction_read_only = off",
    "SET search_path = public",
    "SET client_encoding = 'UTF8'",
    "SET idle_session_timeout = 0",
    "SET statement_timeout = 0",
    "SET standard_conforming_strings = on",
)
"""What a session of this test's own needs in the database."""


@contextmanager
def started() -> Iterator[str]:
    """Yield the address of a server that writes money as the Netherlands do, when it is told to."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="headrace-test-") as made:
        assert write_dutch(Path(made)) == SETTINGS["lc_monetary"]
        with postgres_server(17, locales=Path(made)) as dsn:
            yield dsn


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with started() as dsn:
        yield dsn


@contextmanager
def shop(dsn: str) -> Iterator[Database]:
    """Yield a database with one row of every fragile type, a role that reads it, and one without rights."""
    server = Database(dsn)
    server.run("DROP ROLE IF EXISTS fussy, guest", "CREATE ROLE guest")
    server.run("CREATE ROLE fussy SUPERUSER LOGIN PASSWORD 'fussy'")
    try:
        with fresh_database(dsn, NAME) as database:
            database.run(
                "CREATE TYPE kind AS ENUM ('a', 'ü')",
                *(f"CREATE EXTENSION {name}" for name in ("hstore", "citext", "ltree")),
                f"CREATE TABLE t (id int PRIMARY KEY, {TABLE})",
                "ALTER TABLE t REPLICA IDENTITY FULL",  # else some arrays are left out
                f"INSERT INTO t SELECT 1, {ROW}",
            )
            yield database
    finally:
        server.run("DROP ROLE fussy, guest")


def as_fussy(database: Database) -> str:
    parts = urlsplit(database.dsn)
    return urlunsplit(parts._replace(netloc=f"fussy:fussy@{parts.hostname}:{parts.port}"))


def set_all(database: Database, scope: str) -> None:
    known = {name for (name,) in database.run("SELECT name FROM pg_settings")}
    if scope != "SYSTEM":
        known.add("role")  # which no list tells, and no file of a server's may have
    statements = [
        f"ALTER {scope} SET {name} = '{value}'" for name, value in SETTINGS.items() if name in known
    ]
    assert len(statements) > 20
    database.run(*statements, "SELECT pg_reload_conf()")


def set_back(database: Database) -> None:
    """Let the server have the settings that it had, whatever it does to sessions now."""
    with psycopg.connect(database.dsn, options="-c statement_timeout=0", autocommit=True) as connection:
        for statement in (*OURS, "ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()"):
            connection.execute(statement.encode())


@pytest.fixture(scope="module")
def expected(stack: RunningStack, context: Context, server: str) -> list[dict[str, Any]]:
    """Return the rows as they arrive where nobody has set anything."""
    with shop(server) as database:
        rows = mirrored(context, stack, database, before=(), meanwhile=())
    snapshot, stream, *again = rows
    assert again == [snapshot, stream]
    for kind, stored in stream.items():
        assert {name for name, value in stored.items() if value is None} == NOT_MIRRORED
        assert snapshot[kind] == {**stored, **dict.fromkeys(LATER)}
    return rows


def _comparable(value: Any) -> Any:
    """Return a value that is equal to itself: a NaN is not."""
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    return "NaN" if isinstance(value, float) and isnan(value) else value


def mirrored(
    context: Context,
    stack: RunningStack,
    database: Database,
    *,
    before: tuple[str, ...],
    meanwhile: tuple[str, ...],
) -> list[dict[str, Any]]:
    """Return a row as the snapshot and one as the stream brings it, and both as a resnapshot does.

    Args:
        context: The installation.
        stack: Its servers.
        database: The source.
        before: Whose settings are made before the source is added.
        meanwhile: Whose settings are made while it streams; the connector's sessions begin anew then.
    """

    def row(number: int) -> dict[str, Any]:
        (table,) = Registry(context.registry).source(NAME).tables
        found: dict[str, Any] = {}
        for entry in Registry(context.registry).sinks(NAME):
            with opened_sink(entry) as opened:
                rows = {stored.row["id"]: stored.row for stored in opened.scan(table.schema)}
            found[entry.kind] = {name: _comparable(rows[number].get(name)) for name in NAMES}
        return found

    for scope in before:
        set_all(database, scope)
    try:
        source.add(context, NAME, as_fussy(database), settings=SourceSettings(heartbeat_ms=300))
        for short, kind in KINDS.items():
            given = dict(store_settings(stack, NAME)[kind])
            if kind == "delta":  # whose types have no infinity
                given["unheld"] = "nearest"
            sink.add(context, f"{NAME}{short}", kind, settings=given, source=NAME, wait=False)
        for scope in meanwhile:
            set_all(database, scope)
        if meanwhile:
            ours = "usename = 'fussy' AND pid <> pg_backend_pid()"
            database.run(*OURS, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
        database.run(*OURS, f"INSERT INTO t SELECT 2, {WHOLE}")
        settle(context)
        told = [row(1), row(2)]
        with Redis.from_url(stack.endpoints.redis_url) as redis:
            redis.delete(f"{NAME}:t:1", f"{NAME}:t:2")
        runs.resnapshot(context, NAME, sweep_many=True)
        return [*told, row(1), row(2)]
    finally:
        registry = Registry(context.registry)
        for entry in registry.sinks(NAME):
            sink.remove(context, entry.name, purge=True)
        if NAME in [entry.name for entry in registry.sources()]:
            source.remove(context, NAME)


SCOPES = ("ROLE fussy", f"DATABASE {NAME}", f"ROLE fussy IN DATABASE {NAME}", "SYSTEM")


@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("scope", SCOPES)
def test_values_are_the_same_whatever_others_have_set(
    context: Context, stack: RunningStack, server: str, expected: list[dict[str, Any]], scope: str, when: str
) -> None:
    with shop(server) as database:
        before, meanwhile = ((scope,), ()) if when == "before" else ((), (scope,))
        try:
            found = mirrored(context, stack, database, before=before, meanwhile=meanwhile)
        finally:
            set_back(database)
    assert found == expected


@pytest.mark.timeout(900)
@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Apia"])
def test_values_are_the_same_in_whatever_zone_everything_runs(
    expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """Servers, worker and engine of their own; an hour or a day of the specimens does not exist there."""
    monkeypatch.setenv("TZ", zone)
    with running_stack() as other, started() as dsn, shop(dsn) as database:
        context = open_context(other.home.root)
        try:
            found = mirrored(context, other, database, before=(), meanwhile=())
        finally:
            stop_engine(context.run)
    assert found == expected
