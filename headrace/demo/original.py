"""The truth to compare with: the shop's tables and rows as Postgres itself spells them.

Reads the catalogue and the text output of every type with its own few lines, so that a mistake in the
connector cannot hide by being made on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.adapt import Loader

from headrace.demo.spelling import single
from headrace.model.key import Key
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from headrace.model.values import date_days, key_of, micros_of

__all__ = ["Original"]

_COLUMNS = """
SELECT c.relname, a.attname, coalesce(e.typname, t.typname), coalesce(e.typtype, t.typtype), a.attndims,
       array_position(i.indkey::int2[], a.attnum)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r'
ORDER BY c.relname, a.attnum
"""

_TYPES = {
    "bool": LogicalType.BOOLEAN,
    "int2": LogicalType.INT16,
    "int4": LogicalType.INT32,
    "int8": LogicalType.INT64,
    "float4": LogicalType.FLOAT32,
    "float8": LogicalType.FLOAT64,
    "numeric": LogicalType.NUMERIC,
    "text": LogicalType.TEXT,
    "bpchar": LogicalType.TEXT,
    "varchar": LogicalType.TEXT,
    "uuid": LogicalType.UUID,
    "json": LogicalType.JSON,
    "jsonb": LogicalType.JSON,
    "bytea": LogicalType.BYTES,
    "time": LogicalType.TIME,
    "date": LogicalType.DATE,
    "timestamp": LogicalType.TIMESTAMP,
    "timestamptz": LogicalType.TIMESTAMPTZ,
}


class _Text(Loader):
    def load(self, data: Any) -> Any:
        return bytes(data).decode()


class _Single(Loader):
    def load(self, data: Any) -> Any:
        return single(float(bytes(data)))


class _Days(Loader):
    def load(self, data: Any) -> Any:
        return date_days(bytes(data).decode())


class _Micros(Loader):
    def load(self, data: Any) -> Any:
        return micros_of(bytes(data).decode())


class _Clock(Loader):
    def load(self, data: Any) -> Any:
        hours, minutes, seconds = bytes(data).decode().split(":")
        return (int(hours) * 60 + int(minutes)) * 60_000_000 + round(float(seconds) * 1_000_000)


_LOADERS: dict[str, type[Loader]] = {
    "numeric": _Text,
    "uuid": _Text,
    "json": _Text,
    "jsonb": _Text,
    "timestamptz": _Text,
    "float4": _Single,
    "date": _Days,
    "time": _Clock,
    "timestamp": _Micros,
}


class Original:
    """One schema of a database, read in one transaction: every table as of the same moment.

    Args:
        connection: Made by :meth:`open`.
        namespace: The Postgres schema.
    """

    def __init__(self, connection: psycopg.Connection[Any], namespace: str) -> None:
        self._connection = connection
        self._namespace = namespace

    @classmethod
    @contextmanager
    def open(cls, dsn: str, namespace: str = "public") -> Iterator[Original]:
        """Connect, read as of now until the end of the block."""
        spelled = (
            "-c TimeZone=UTC -c DateStyle=ISO -c bytea_output=hex -c extra_float_digits=1 -c lc_monetary=C"
        )
        with psycopg.connect(dsn, options=spelled) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            for name, loader in _LOADERS.items():
                connection.adapters.register_loader(name, loader)
            yield cls(connection, namespace)

    def tables(self) -> list[TableSchema]:
        """Return every table that has a primary key, by name."""
        columns: dict[str, list[Column]] = {}
        keys: dict[str, dict[int, str]] = {}
        for table, name, kind, category, dimensions, place in self._connection.execute(
            _COLUMNS, (self._namespace,)
        ):
            logical = LogicalType.ENUM if category == "e" else _TYPES.get(kind, LogicalType.OTHER)
            columns.setdefault(table, []).append(Column(name, logical, dimensions))
            if place is not None:
                keys.setdefault(table, {})[place] = name
        return [
            TableSchema(
                TableId(self._namespace, table),
                tuple(found),
                tuple(name for _, name in sorted(keys[table].items())),
            )
            for table, found in columns.items()
        ]

    def count(self, schema: TableSchema) -> int:
        """Return the number of rows."""
        query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(self._namespace, schema.table.name))
        row = self._connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    def rows(self, schema: TableSchema) -> Iterator[dict[str, Any]]:
        """Yield every row, column name → logical value."""
        names = [column.name for column in schema.columns]
        query = sql.SQL("SELECT {} FROM {}").format(
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.Identifier(self._namespace, schema.table.name),
        )
        with self._connection.cursor(name="original") as cursor:
            cursor.itersize = 2_000
            cursor.execute(query)
            for row in cursor:
                yield dict(zip(names, row, strict=True))

    def sampled(self, schema: TableSchema, count: int) -> list[tuple[str, dict[str, Any]]]:
        """Return some rows by chance, each with the transaction that has written it."""
        names = [column.name for column in schema.columns]
        query = sql.SQL("SELECT xmin::text, {} FROM {} ORDER BY random() LIMIT {}").format(
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.Identifier(self._namespace, schema.table.name),
            sql.Literal(count),
        )
        return [
            (writer, dict(zip(names, values, strict=True)))
            for writer, *values in self._connection.execute(query)
        ]

    def first_keys(self, schema: TableSchema, count: int = 3) -> list[Key]:
        """Return the keys of the rows that lie first in the table, which a snapshot reads first."""
        query = sql.SQL("SELECT {} FROM {} ORDER BY ctid LIMIT {}").format(
            sql.SQL(", ").join(map(sql.Identifier, schema.key)),
            sql.Identifier(self._namespace, schema.table.name),
            sql.Literal(count),
        )
        return [
            key_of(schema, dict(zip(schema.key, row, strict=True)))
            for row in self._connection.execute(query).fetchall()
        ]
