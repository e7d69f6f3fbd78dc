"""What Postgres changes without telling it in its log: seen at the next look, for that table, and kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date

import pytest

from connectors.postgres import PostgresSource
from headrace.cli.context import open_context
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.opened import open_sink
from headrace.control.registry import Registry
from headrace.control.runner import stop_engine
from headrace.control.verdicts import standing
from headrace.control.watcher import look_now
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.database import Database, fresh_database
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.untold import NAME, QUIET, SCHEMA, UNTOLD
from tests.support.waiting import settle, until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(1_800),
    pytest.mark.usefixtures("honest"),
]


@contextmanager
def watched(stack: RunningStack) -> Iterator[tuple[Context, Database]]:
    context = open_context(stack.home.root)
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as database:
        database.run(*filter(str.strip, SCHEMA.split(";")))
        skipped = ("attached",)
        tables = [t for t in _tables(database) if t.name not in skipped]
        source.add(context, NAME, database.dsn, tables=tables, settings=SourceSettings(heartbeat_ms=300))
        sink.add(context, "watchedcache", "redis", settings={"url": stack.endpoints.redis_url}, source=NAME)
        try:
            yield context, database
        finally:
            sink.remove(context, "watchedcache", purge=True)
            source.remove(context, NAME)


def _tables(database: Database) -> list[TableId]:
    return PostgresSource(database.dsn).tables(["public"])


def found(context: Context) -> dict[str, set[str]]:
    """Return table → the codes that stand against it."""
    told: dict[str, set[str]] = {}
    for verdict in standing(Registry(context.registry), NAME):
        told.setdefault(verdict.topic.rpartition(".")[2], set()).add(verdict.code)
    return told


def schema(context: Context, name: str) -> TableSchema:
    tables = Registry(context.registry).source(NAME).tables
    return next(table.schema for table in tables if table.schema.table.name == name)


def states(context: Context) -> dict[str, lag.State]:
    return {t.table.rpartition(".")[2]: t.state for t in lag.measure(context).tables}


def test_what_the_log_does_not_tell_is_seen_for_that_table_only_and_kept(stack: RunningStack) -> None:
    with watched(stack) as (context, database):
        until(lambda: lag.measure(context).in_sync)
        for group in QUIET:
            database.run(*group)
            look_now(context, NAME)
        until(lambda: "later" in schema(context, "quiet").by_name and lag.measure(context).in_sync)
        until(lambda: found(context) == {})  # what is told in the log is in doubt until it is read there

        for _, statement in UNTOLD.values():
            database.run(*statement.split("; "))
        wanted = {table: code for table, (code, _) in UNTOLD.items()} | {"tree": "TABLE_ATTACHED"}
        until(lambda: all(code in found(context).get(table, ()) for table, code in wanted.items()))
        assert found(context).keys() == wanted.keys()

        def told(*among: lag.State) -> set[str]:
            return {table for table, said in states(context).items() if said in among}

        # What was emptied is in doubt, also while the engine is stopped.
        until(lambda: told(lag.State.RESYNC_REQUIRED, lag.State.CATCHING_UP) == set(wanted))
        assert told(lag.State.STREAMING) == {"quiet", "cut", "parted", "single"}
        # The application can update what Postgres refused while it was published.
        until(lambda: not database.run("SELECT 1 FROM pg_publication_tables WHERE tablename = 'refused'"))
        database.run("UPDATE refused SET v = 'free'")

        stop_engine(context.run)
        until(lambda: remedies(context)["quiet"].startswith("headrace sink resume"))
        carry_out(remedies(context)["quiet"], stack.home.root, database.run)
        until(lambda: states(context)["quiet"] is lag.State.STREAMING)
        # Who follows columns publishes two of them again, and may have read them anew.
        until(lambda: told(lag.State.RESYNC_REQUIRED) >= set(wanted) - {"filtered", "refused"})
        assert told(lag.State.STREAMING) <= {"quiet", "cut", "parted", "single", "filtered", "refused"}

        for table in wanted:
            if remedy := remedies(context).get(table):  # the one of another table may have mended it, too
                carry_out(remedy, stack.home.root, database.run)
        look_now(context, NAME)
        assert found(context) == {}
        until(lambda: set(states(context).values()) == {lag.State.STREAMING})
        settle(context)
        for table in UNTOLD:
            assert stored(context, table) == wanted_rows(context, database, table), table


def remedies(context: Context) -> dict[str, str]:
    """Return table → what lag tells to do about it."""
    return {t.table.rpartition(".")[2]: t.remedy for t in lag.measure(context).tables if t.remedy}


def stored(context: Context, table: str) -> list[object]:
    with closing(open_sink(Registry(context.registry).sink("watchedcache"))) as store:
        rows = (dict(sorted(row.row.items())) for row in store.scan(schema(context, table)))
        return sorted(map(_plain, rows), key=str)


def wanted_rows(context: Context, database: Database, table: str) -> list[object]:
    only = "ONLY " if table == "parent" else ""
    told = database.run(f"SELECT to_jsonb(t)::text FROM {only}{table} t")
    columns = sorted(schema(context, table).columns, key=lambda column: column.name)
    rows = (json.loads(text, parse_float=str) for (text,) in told)
    return sorted((_plain({c.name: _logical(c, row[c.name]) for c in columns}) for row in rows), key=str)


def _logical(column: Column, value: str) -> object:
    """Return a value as sinks have it: a date is its number of days since 1970."""
    if column.type is LogicalType.DATE:
        return (date.fromisoformat(value) - date(1970, 1, 1)).days
    return value


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if value is None else str(value)
