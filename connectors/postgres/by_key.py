"""Rows of a table, named in SQL by the texts of their keys."""

from __future__ import annotations

import re
from collections.abc import Sequence

from psycopg import sql

from connectors.postgres.names import Meaning
from headrace.model.key import Key
from headrace.model.schema import Column, LogicalType, TableSchema

__all__ = ["after", "condition", "first_told", "goes_on_after", "same", "spelled"]

_DATED = (LogicalType.DATE, LogicalType.TIMESTAMP, LogicalType.TIMESTAMPTZ)
_TOLD = (LogicalType.INT16, LogicalType.INT32, LogicalType.INT64, LogicalType.UUID)
"""Whose values the connector tells as Postgres reads them."""
_TEXTS = ("text", "varchar")
"""So it does those of these types. Others that are texts to us may be told, or compared, otherwise."""
_YEAR = re.compile(r"([+-]?\d{4,})(-.*)", re.DOTALL)


def spelled(column: Column, text: str | None) -> str | None:
    """Return a key's text as Postgres reads it: it knows no year 0, and no year with a sign."""
    if text is None or column.type not in _DATED or not (found := _YEAR.match(text)):
        return text
    year, rest = int(found[1]), found[2]
    return f"{year:04d}{rest}" if year > 0 else f"{1 - year:04d}{rest} BC"


def same(
    column: Column, here: sql.Composable, given: sql.Composable, meaning: Meaning | None = None
) -> sql.Composed:
    """Return the condition that a key column is what a key tells as text.

    Args:
        column: The column.
        here: It, in the statement.
        given: The text, in the statement.
        meaning: Of the column's type; None in sessions that find the type, and its operator, by name.
    """
    if column.type is LogicalType.BYTES:
        given = sql.SQL("decode({}, 'hex')").format(given)
    # Type and operator are the catalogue's own words.
    equals, native = (meaning.equals, meaning.type) if meaning else ("=", column.native)
    told = sql.SQL("{} {} CAST({} AS {})").format(here, sql.SQL(equals), given, sql.SQL(native))
    if not column.nullable:
        return told
    return sql.SQL("({} OR ({} IS NULL AND {} IS NULL))").format(told, here, given)


def condition(schema: TableSchema, keys: Sequence[Key]) -> sql.Composed:
    """Return the condition that a row has one of the keys."""
    rows = [
        sql.SQL("({})").format(
            sql.SQL(" AND ").join(
                [
                    same(column, sql.Identifier(column.name), sql.Literal(spelled(column, text)))
                    for column, text in zip(schema.key_columns, key.parts, strict=True)
                ]
            )
        )
        for key in keys
    ]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(rows))


def goes_on_after(schema: TableSchema) -> bool:
    """Return whether a key that the connector tells says which rows of a table come after it.

    It reads in the order of the key's columns, and tells their values with commas between them. Rows without
    one come last. A key that somebody has declared it may take in the order of the table's columns.
    """
    first, *others = schema.key_columns
    if first is not next(column for column in schema.columns if column.name in schema.key):
        return False
    if first.type is LogicalType.TEXT and first.base in _TEXTS:
        told = all(column.type in _TOLD and not column.dimensions for column in others)
    else:
        told = first.type in _TOLD
    return told and not first.dimensions and not first.nullable


def first_told(schema: TableSchema, told: str) -> str:
    """Return the value of a key's first column, of a key that the connector has told.

    Of a table that :func:`goes_on_after` allows: only one of the values may hold a comma.
    """
    others = len(schema.key) - 1
    if schema.key_columns[0].type is LogicalType.TEXT:
        return told.rsplit(",", others)[0] if others else told
    return told.split(",", 1)[0]


def after(schema: TableSchema, value: str) -> sql.Composed:
    """Return the condition that a row comes after a key, by the value of its first column.

    Of a key of several columns the rows that share that value are read once more.
    """
    first, *others = schema.key_columns
    comes = sql.SQL(">=" if others else ">")
    return sql.SQL("{} {} {}").format(sql.Identifier(first.name), comes, sql.Literal(value))
