"""Schemas, tables, columns, roles and passwords may be called anything: every row arrives or is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from psycopg import sql

from connectors.postgres.address import CUT
from headrace.config.source import SourceSettings
from headrace.control import sink, source, source_check
from headrace.control.context import Context
from headrace.control.opened import opened_sink
from headrace.control.registry import Registry
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.mirror import KINDS, store_settings
from tests.support.stack import RunningStack
from tests.support.waiting import settle

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(900)]

NAME = "anyname"
ODD = " .,:;/\\|%$&#?!*+-_~^'\"`(){}[]<>=@äÄß€漢🙂\t\n"
"""What names are made of that somebody between Postgres and a store may read otherwise."""


def of_bytes(most: int) -> st.SearchStrategy[str]:
    """Return names of at most so many bytes, such as Postgres keeps whole."""
    letters = st.one_of(st.sampled_from(ODD), st.sampled_from("aBz09"), st.characters(codec="utf-8"))
    text = st.text(letters.filter(lambda letter: letter != "\0"), min_size=1, max_size=most)
    return text.filter(lambda name: len(name.encode()) <= most and not name.startswith("pg_"))


def is_whole(name: str) -> bool:
    """Return whether Connect cuts nothing off the name; the check refuses a role or a password otherwise."""
    return name == name.strip(CUT)


def is_role(name: str) -> bool:
    return is_whole(name) and "'" not in name


@dataclass(frozen=True, slots=True)
class Table:
    """A table of two columns."""

    schema: str
    name: str
    key: str
    value: str

    @property
    def id(self) -> TableId:
        return TableId(self.schema, self.name)

    def told(self, text: str, **values: object) -> sql.Composed:
        parts = {name: sql.Identifier(getattr(self, name)) for name in ("schema", "name", "key", "value")}
        return sql.SQL(text).format(**parts, **{name: sql.Literal(value) for name, value in values.items()})


def tables() -> st.SearchStrategy[list[Table]]:
    made = st.builds(Table, of_bytes(20), of_bytes(63), of_bytes(63), of_bytes(63))
    apart = made.filter(lambda table: table.key != table.value and table.schema != "headrace")
    return st.lists(apart, min_size=4, max_size=8, unique_by=lambda table: (table.schema, table.name))


@contextmanager
def a_role(server: str, name: str, password: str) -> Iterator[str]:
    """Yield the address of the server for a role of that name; the database is to be put behind it."""
    role = sql.Identifier(name)
    with psycopg.connect(server, autocommit=True) as connection:
        made = sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}").format(role, sql.Literal(password))
        connection.execute(made)
        try:
            at = urlsplit(server)
            login = f"{quote(name, safe='')}:{quote(password, safe='')}@{at.hostname}:{at.port}"
            yield urlunsplit(at._replace(netloc=login))
        finally:
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


def rows_of(database: Database, table: Table) -> list[tuple[str, int]]:
    with psycopg.connect(database.dsn) as connection:
        return connection.execute(table.told("SELECT {key}, {value} FROM {schema}.{name}")).fetchall()


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), of_bytes(63).filter(is_role), of_bytes(40).filter(is_whole))
def test_names_of_any_kind_reach_every_store(
    context: Context, stack: RunningStack, named: list[Table], role: str, password: str
) -> None:
    server = stack.endpoints.postgres_dsn
    with fresh_database(server, NAME) as database, a_role(server, role, password) as login:
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            for table in named:
                for text in (
                    "CREATE SCHEMA IF NOT EXISTS {schema}",
                    "CREATE TABLE {schema}.{name} ({key} text PRIMARY KEY, {value} int)",
                    "INSERT INTO {schema}.{name} VALUES ({first}, 1)",
                ):
                    connection.execute(table.told(text, first=table.name))
        url = urlunsplit(urlsplit(login)._replace(path=f"/{NAME}"))
        schemas = sorted({table.schema for table in named})
        found = [one for one in source_check.check(url, schemas=schemas) if one.severity is Severity.ERROR]
        assert all(one.table is not None and one.hint for one in found), found
        refused = {one.table for one in found}
        assume(refused < {table.id for table in named})
        mirror(context, stack, url, schemas)
        try:
            compared(context, database, [table for table in named if table.id not in refused])
        finally:
            for entry in Registry(context.registry).sinks(NAME):
                sink.remove(context, entry.name, purge=True)
            source.remove(context, NAME)


def mirror(context: Context, stack: RunningStack, url: str, schemas: Sequence[str]) -> None:
    given = SourceSettings(heartbeat_ms=300)
    source.add(context, NAME, url, schemas=schemas, settings=given, skip_unfit=True)
    for short, kind in KINDS.items():
        sink.add(context, f"{NAME}{short}", kind, settings=store_settings(stack, NAME)[kind], source=NAME)


def compared(context: Context, database: Database, named: Sequence[Table]) -> None:
    """Write to each table, then compare each row of it in each store."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for table in named:
            connection.execute(table.told("UPDATE {schema}.{name} SET {value} = 2"))
            connection.execute(table.told("INSERT INTO {schema}.{name} VALUES ({more}, 3)", more=table.value))
    settle(context)
    registry = Registry(context.registry)
    schemas = {one.schema.table: one.schema for one in registry.source(NAME).tables}
    for entry in registry.sinks(NAME):
        with opened_sink(entry) as opened:
            for table in named:
                held = [(r.row[table.key], r.row[table.value]) for r in opened.scan(schemas[table.id])]
                assert sorted(held) == sorted(rows_of(database, table)), (entry.name, table)
