"""The shop's database: made from nothing, filled by COPY, the same for the same seed."""

from __future__ import annotations

from importlib.resources import files
from random import Random
from typing import Any

import psycopg
from psycopg import sql

from headrace.demo.copytext import blocks
from headrace.demo.stock import TABLES, Sizes, Stock

__all__ = ["DATABASE", "create", "drop", "seed"]

DATABASE = "shop"


def drop(server_dsn: str, database: str = DATABASE) -> None:
    """Remove the database, whoever is connected to it; nothing happens when there is none."""
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)),
        )


def create(server_dsn: str, database: str = DATABASE) -> str:
    """Create the database anew with empty tables and return its DSN."""
    drop(server_dsn, database)
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} ENCODING 'UTF8' TEMPLATE template0").format(sql.Identifier(database))
        )
    dsn = psycopg.conninfo.make_conninfo(server_dsn, dbname=database)
    with psycopg.connect(dsn) as connection:
        _run(connection, "schema.sql")
    return dsn


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
