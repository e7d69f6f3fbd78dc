"""The shop's database: made from nothing, filled by COPY, the same for the same seed."""

from __future__ import annotations

import time
from importlib.resources import files
from random import Random
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import errors, sql

from headrace.demo.copytext import blocks
from headrace.demo.stock import TABLES, Sizes, Stock
from headrace.model.errors import StackError, UsageError

__all__ = ["DATABASE", "create", "drop", "dsn_of", "refuse_strangers", "seed"]

DATABASE = "shop"


_MARK = "Sample data of headrace demo; it is removed without asking."


def refuse_strangers(server_dsn: str, database: str = DATABASE) -> None:
    """Do nothing when there is no such database or the demo made it.

    Raises:
        UsageError: When somebody else made it (``DEMO_DATABASE_TAKEN``).
    """
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s", (database,)
        ).fetchone()
    if row is not None and row[0] != _MARK:
        raise UsageError(
            f"The local Postgres has a database {database} that the demo did not make.",
            code="DEMO_DATABASE_TAKEN",
            hint="Give the demo a home of its own: headrace demo --home DIRECTORY",
        )


def drop(server_dsn: str, database: str = DATABASE) -> None:
    """Remove the demo's database, whoever is connected to it or replicates it; idempotent.

    Raises:
        UsageError: When somebody else made it (``DEMO_DATABASE_TAKEN``).
        StackError: When Postgres still waits for somebody to let go of it (``DEMO_DATABASE_BUSY``).
    """
    refuse_strangers(server_dsn, database)
    try:
        _drop(server_dsn, database)
    except (errors.QueryCanceled, errors.ObjectInUse) as error:
        raise StackError(
            f"Postgres does not remove the database {database}: {error}",
            code="DEMO_DATABASE_BUSY",
            hint="Try again in a minute; see pg_stat_activity.",
        ) from error


def _drop(server_dsn: str, database: str) -> None:
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '40s'")
        slots = "FROM pg_replication_slots WHERE database = %s"
        connection.execute(f"SELECT pg_terminate_backend(active_pid) {slots} AND active", (database,))
        for _ in range(50):
            if connection.execute(f"SELECT true {slots} AND active", (database,)).fetchone() is None:
                break
            time.sleep(0.1)
        connection.execute(f"SELECT pg_drop_replication_slot(slot_name) {slots}", (database,))
        connection.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)),
        )


def create(server_dsn: str, database: str = DATABASE) -> str:
    """Create the demo's database anew with empty tables and return its DSN.

    Raises:
        UsageError: When somebody else made one of that name (``DEMO_DATABASE_TAKEN``).
    """
    drop(server_dsn, database)
    name = sql.Identifier(database)
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} ENCODING 'UTF8' TEMPLATE template0").format(name))
        connection.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(name, sql.Literal(_MARK)))
    dsn = dsn_of(server_dsn, database)
    with psycopg.connect(dsn) as connection:
        _run(connection, "schema.sql")
    return dsn


def dsn_of(server_dsn: str, database: str = DATABASE) -> str:
    """Return the URL of ``database`` on the server of another URL, or the same for a keyword string."""
    if "://" in server_dsn:
        return urlsplit(server_dsn)._replace(path=f"/{database}").geturl()
    return psycopg.conninfo.make_conninfo(server_dsn, dbname=database)


def seed(dsn: str, *, seed: int = 1, sizes: Sizes | None = None) -> dict[str, int]:
    """Fill the empty tables in one transaction and return the rows per table.

    The same ``seed`` and ``sizes`` give the same rows.
    """
    stock = Stock(Random(seed), sizes or Sizes())  # noqa: S311  (sample data, no secret)
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        for table in TABLES:
            statement = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(table))
            with cursor.copy(statement) as copy:
                for block in blocks(stock.rows(table)):
                    copy.write(block)
        for table in ("customers", "orders", "reviews"):
            cursor.execute(
                sql.SQL("SELECT setval(pg_get_serial_sequence({}, 'id'), (SELECT max(id) FROM {}))").format(
                    sql.Literal(table), sql.Identifier(table)
                )
            )
        _run(connection, "indexes.sql")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ANALYZE")
    return {table: getattr(stock.sizes, table) for table in TABLES}


def _run(connection: psycopg.Connection[Any], script: str) -> None:
    connection.execute(files("headrace.demo").joinpath(script).read_bytes())
