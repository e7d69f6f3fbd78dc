"""What is written to Postgres to become a backlog: the same rows for the same size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

import psycopg

__all__ = ["FLAT_COLUMNS", "WORKLOADS", "Workload", "flat", "hot", "many", "wide_rows", "workload"]

_Connection = psycopg.Connection[Any]

_WIDE_COLUMNS = {
    "id": "bigint PRIMARY KEY",
    "customer_id": "int NOT NULL",
    "status": "text NOT NULL",
    "title": "text NOT NULL",
    "note": "text",
    "amount": "numeric(12,2) NOT NULL",
    "weight": "double precision",
    "quantity": "int NOT NULL",
    "active": "boolean NOT NULL",
    "ref": "uuid NOT NULL",
    "day": "date",
    "created_at": "timestamptz NOT NULL",
    "updated_at": "timestamptz NOT NULL",
    "tags": "text",
    "attributes": "jsonb",
}
FLAT_COLUMNS = tuple(_WIDE_COLUMNS)
_WIDE = ", ".join(f"{name} {kind}" for name, kind in _WIDE_COLUMNS.items())

_WIDE_ROW = """
    {n}, {n} % 5000, (ARRAY['new','paid','sent','done'])[1 + {n} % 4], 'Title ' || md5({n}::text),
    CASE WHEN {n} % 10 < 8 THEN repeat(md5(({n} * 7)::text) || ' ', 1 + {n} % 6) END, ({n} % 99999) / 100.0,
    {n} / 7.0::float8, {quantity} + {n} % 500, {n} % 3 > 0, md5('r' || {n})::uuid,
    date '2020-01-01' + {n} % 2000,
    timestamptz '2026-01-01 00:00:00Z' + {n} * interval '1.000001 s',
    timestamptz '2026-02-01 00:00:00Z' + {n} * interval '1.000003 s',
    'tag' || {n} % 50 || ', tag' || {n} % 7,
    jsonb_build_object('a', {n}, 'b', md5({n}::text), 'c', {n} % 2 = 0)
"""

_CHANGED = """
    status = (ARRAY['new','paid','sent','done'])[1 + mod({n} + id::int, 4)],
    amount = mod({n} * 31, 99999) / 100.0,
    quantity = mod({n}, 500), note = md5({n}::text), updated_at = updated_at + {n} * interval '1.000007 s'
"""

_INSERTS = 1_000
_UPDATES = 100


@dataclass(frozen=True, slots=True)
class Workload:
    """Tables and what is written to them once they are captured.

    Args:
        name: Of the workload.
        about: In a sentence, with its size.
        tables: Names of the tables in ``public``.
        ddl: Creates them.
        write: Commits all changes and returns their number.
    """

    name: str
    about: str
    tables: tuple[str, ...]
    ddl: str
    write: Callable[[_Connection], int]


def wide_rows(table: str, first: int, last: int, *, quantity: int = 0) -> str:
    """Return the statement that inserts rows ``first`` to ``last`` of some 300 bytes each."""
    row = _WIDE_ROW.format(n="n", quantity=quantity)
    return f"INSERT INTO {table} SELECT {row} FROM generate_series({first}::int, {last}) AS n"


def _insert(connection: _Connection, table: str, rows: int) -> int:
    for first in range(1, rows + 1, _INSERTS):
        connection.execute(wide_rows(table, first, min(rows, first + _INSERTS - 1)))
        connection.commit()
    return rows


def _update(connection: _Connection, table: str, ids: Iterator[list[int]]) -> int:
    changes = 0
    for number, some in enumerate(ids):
        query = f"UPDATE {table} SET {_CHANGED.format(n=number)} WHERE id = ANY(%s)"
        changes += connection.execute(query, (some,)).rowcount
        connection.commit()
    return changes


def flat(rows: int) -> Workload:
    """Return one wide table: ``rows`` inserts, then half as many updates of rows chosen evenly."""

    def write(connection: _Connection) -> int:
        rng = Random(rows)
        ids = (rng.sample(range(1, rows + 1), _UPDATES) for _ in range(rows // 2 // _UPDATES))
        return _insert(connection, "flat", rows) + _update(connection, "flat", ids)

    about = f"one table of 15 columns, 200–500 bytes a row: {rows:,} inserts, {rows // 2:,} updates"
    return Workload("flat", about, ("flat",), f"CREATE TABLE flat ({_WIDE})", write)


def hot(rows: int) -> Workload:
    """Return one wide table of ``rows`` rows and nine times as many updates, of few rows most (Zipf 1.2)."""

    def write(connection: _Connection) -> int:
        changes = _insert(connection, "hot", rows)
        rng = Random(rows)
        weights = list(accumulate(1 / rank**1.2 for rank in range(1, rows + 1)))
        order = rng.sample(range(1, rows + 1), rows)
        for number in range(9 * rows // _UPDATES):
            # Statement by statement, for one UPDATE changes a row once however often it is named.
            some = rng.choices(order, cum_weights=weights, k=_UPDATES)
            connection.execute("SELECT touch(%s, %s)", (some, number))
            connection.commit()
            changes += len(some)
        return changes

    touch = f"""
        CREATE FUNCTION touch(ids int[], number int) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE one int;
        BEGIN
            FOREACH one IN ARRAY ids LOOP
                UPDATE hot SET {_CHANGED.format(n="number")} WHERE id = one;
            END LOOP;
        END $$
    """
    about = f"one table of 15 columns: {rows:,} inserts, {9 * rows:,} updates of keys after Zipf 1.2"
    return Workload("hot", about, ("hot",), f"CREATE TABLE hot ({_WIDE}); {touch}", write)


_TABLES = 20


def many(rows: int) -> Workload:
    """Return twenty small tables: ``rows`` inserts and half as many updates in each, taking turns."""
    tables = tuple(f"t{number:02d}" for number in range(1, _TABLES + 1))

    def write(connection: _Connection) -> int:
        changes = 0
        for first in range(1, rows + 1, _UPDATES):
            last = min(rows, first + _UPDATES - 1)
            for place, table in enumerate(tables):
                connection.execute(
                    f"INSERT INTO {table} SELECT n, 'name ' || md5((n * {place + 1})::text), n % 100,"
                    f" (n % 9999) / 100.0, timestamptz '2026-01-01 00:00:00Z' + n * interval '1.000001 s'"
                    f" FROM generate_series({first}::int, {last}) AS n"
                )
                told = connection.execute(
                    f"UPDATE {table} SET quantity = quantity + 1, name = name || '.'"
                    f" WHERE id BETWEEN {first} AND {last} AND id % 2 = 0"
                )
                changes += last - first + 1 + told.rowcount
            connection.commit()
        return changes

    columns = "id int PRIMARY KEY, name text NOT NULL, quantity int, price numeric(8,2), at timestamptz"
    ddl = "; ".join(f"CREATE TABLE {table} ({columns})" for table in tables)
    about = f"{_TABLES} tables of 5 columns: {rows:,} inserts and {rows // 2:,} updates in each"
    return Workload("many", about, tables, ddl, write)


WORKLOADS: dict[str, tuple[Callable[[int], Workload], int, int]] = {
    "flat": (flat, 40_000, 100_000),
    "hot": (hot, 8_000, 15_000),
    "many": (many, 2_500, 5_000),
}
"""Name → what makes it, and its size in a short and in a full run."""


def workload(name: str, *, full: bool) -> Workload:
    """Return a workload in the size that fits the run."""
    make, short, long = WORKLOADS[name]
    return make(long if full else short)
