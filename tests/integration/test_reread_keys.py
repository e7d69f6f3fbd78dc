"""Tables of every kind of key are read anew whole, beside the stream, in parts of a few rows."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis

from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from tests.support.database import Database, fresh_database
from tests.support.mirror import mirrored
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(400)]

ROWS = 40
ODD = (
    "VALUES (-1, '-infinity'::{0}), (-2, 'infinity'),"
    " (-3, '2026-10-25 00:30:00.000001'), (-4, '0044-03-15 23:59:59.999999 BC')"
)
DAY = "'2026-01-01'::timestamptz"
KEYS = {
    "stamps": ("timestamptz", "'2026-03-29 00:00+00'::timestamptz + i * interval '100 s 1 microsecond'", ODD),
    "moments": ("timestamp", "'2026-03-29 00:00'::timestamp + i * interval '100 s 1 microsecond'", ODD),
    "clocks": ("time", "'00:00'::time + i * interval '100 s 1 microsecond'", "VALUES (-1, '24:00'::time)"),
    "rough": ("timestamptz(0)", "'2026-10-25 00:00+00'::timestamptz + i * interval '40 s'", ""),
    "tamed": ("moment", "'2026-10-25 00:00+00'::timestamptz + i * interval '40 s 1 microsecond'", ""),
    "days": ("date", "'2026-01-01'::date + i", ""),
    "letters": ("char(5)", "chr(97 + i % 26) || repeat(' ', i % 2) || i / 26", ""),
    "words": ("text", "chr(65 + i * 7 % 60) || ' ' || i", ""),
    "moods": ("citext", "chr(65 + i * 7 % 50) || i", ""),
    "ids": ("uuid", "md5(i::text)::uuid", ""),
    "spans": ("interval", "i * interval '1 month 2 days 3 microseconds'", ""),
    "ranges": ("tstzrange", f"tstzrange({DAY}, {DAY} + i * interval '1 s')", ""),
    "labels": ("label", "('l' || i)::label", ""),
    "amounts": ("numeric", "i * 1.1", "VALUES (-1, 'NaN'::{0}), (-2, 1e30 + 0.1), (-3, -0.000001)"),
    "roots": ("float8", "sqrt(i)", "VALUES (-1, 'NaN'::{0}), (-2, '-Infinity'), (-3, 1e-300)"),
    "halves": ("real", "sqrt(i)::real", ""),
    "prints": ("bytea", "decode(md5(i::text), 'hex')", "VALUES (-1, ''::{0})"),
    "spells": ("int4range", "int4range(i, i + 2)", "VALUES (-1, 'empty'::{0}), (-2, '(,0)')"),
    "hosts": ("inet", "'10.0.0.0'::inet + i * 7", "VALUES (-1, '::1/64'::{0})"),
    "nets": ("cidr", "('10.' || i * 6 || '.0.0/16')::cidr", "VALUES (-1, '::/64'::{0}), (-2, '10.7.7.0/24')"),
    "cards": ("macaddr8", "('08:00:2b:01:02:03:04:' || lpad(to_hex(i * 5), 2, '0'))::macaddr8", ""),
    "paths": ("ltree", "('top.b' || i * 7 % 60)::ltree", "VALUES (-1, 'top'::{0}), (-2, 'top.b7.c')"),
    "handles": ("handle", "(chr(65 + i * 7 % 60) || ' ' || i)::handle", ""),
}  # fmt: skip
"""Table → type of its key, the key of row i, and rows besides."""
OTHERS = ("parted", "flagged")
"""Tables of keys of several columns."""


LABELS = "CREATE TYPE label AS ENUM ({})".format(", ".join(f"'l{1 + i * 7 % ROWS}'" for i in range(ROWS)))


@pytest.fixture(scope="module")
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "keys") as database:
        database.run("CREATE EXTENSION citext", "CREATE DOMAIN moment AS timestamptz NOT NULL", LABELS)
        database.run("CREATE EXTENSION ltree", "CREATE DOMAIN handle AS text")
        for table, (kind, key, odd) in KEYS.items():
            database.run(
                f"CREATE TABLE {table} (n int NOT NULL, k {kind} PRIMARY KEY)",
                f"INSERT INTO {table} SELECT i, {key} FROM generate_series(1, {ROWS}) i",
                *([f"INSERT INTO {table} {odd.format(kind)}"] if odd else []),
            )
        database.run(
            "CREATE TABLE parted (n int, k timestamptz, id int, PRIMARY KEY (k, id)) PARTITION BY RANGE (k)",
            "CREATE TABLE parted_a PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2026-01-02')",
            "CREATE TABLE parted_b PARTITION OF parted DEFAULT",
            f"INSERT INTO parted SELECT i, '2026-01-01'::timestamptz + i / 7 * interval '1 h', i"
            f" FROM generate_series(1, {3 * ROWS}) i",
            "CREATE TABLE flagged (n int, k boolean, id int, PRIMARY KEY (k, id))",
            f"INSERT INTO flagged SELECT i, i % 3 = 0, i FROM generate_series(1, {3 * ROWS}) i",
        )
        settings = SourceSettings(heartbeat_ms=300, snapshot_chunk_rows=32)
        source.add(context, "keys", database.dsn, settings=settings, wait=False)
        kept = {"url": stack.endpoints.redis_url, "format": "json"}
        sink.add(context, "keyscache", "redis", settings=kept, wait=False)
        settle(context)
        yield database
        for entry in Registry(context.registry).sinks("keys"):
            sink.remove(context, entry.name, purge=True)
        source.remove(context, "keys")


def test_keys_of_every_kind_are_read_whole(database: Database, context: Context, stack: RunningStack) -> None:
    """Its time is that of a resnapshot of a table for each kind of key, each read by its own way."""
    with redis.Redis.from_url(stack.endpoints.redis_url, decode_responses=True) as cache:
        for table in (*KEYS, *OTHERS):
            names = sorted(cache.scan_iter(f"keys:{table}:*", count=1000))
            assert len(names) >= ROWS, table
            cache.copy(names[0], f"keys:{table}:stray")
            cache.delete(*names[::2])
        runs.resnapshot(context, "keys", sweep_many=True)
        for table in (*KEYS, *OTHERS):
            held = [
                json.loads(value)["n"] for value in cache.mget(sorted(cache.scan_iter(f"keys:{table}:*")))
            ]
            assert sorted(held) == sorted(n for (n,) in database.run(f"SELECT n FROM {table}")), table


def test_an_order_of_somebody_else_that_ends_the_connector_at_each_start_is_recovered_from(
    stack: RunningStack,
) -> None:
    """P7. Our own orders leave such a key out; somebody may write one into the table of orders."""
    keys = "CREATE TABLE tagged (tags text[] PRIMARY KEY, n int)"
    rows = "INSERT INTO tagged SELECT ARRAY['t' || i], i FROM generate_series(1, 100) i"
    with mirrored(stack, "ordered", keys, "CREATE TABLE t (id int PRIMARY KEY)", rows) as mirror:
        mirror.settle()
        order = json.dumps({"type": "incremental", "data-collections": ["public.tagged"]})
        mirror.database.run(
            f"INSERT INTO headrace.ordered_signal VALUES ('raw', 'execute-snapshot', '{order}')"
        )

        def told() -> lag.SourceLag:
            return next(one for one in lag.measure(mirror.context).sources if one.source == "ordered")

        until(lambda: told().remedy == "headrace recover ordered", why=told)
        mirror.database.run("INSERT INTO t VALUES (1)", "DELETE FROM tagged WHERE n = 7")
        carry_out("headrace recover ordered", stack.home.root, mirror.database.run)
        mirror.settle()
        for name, found in mirror.stored("tagged").items():
            assert len(found) == 99, name
        assert all(len(found) == 1 for found in mirror.stored("t").values())
