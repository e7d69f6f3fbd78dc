"""Columns that the database computes and no record carries: how they are asked for, and what is answered.

A stored generated column is not in the log, or breaks what reads it; so it is looked up by the row's key
whenever the row has changed. Each value is asked for as a text that depends on no setting, and read as the
same value that a record would bring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from psycopg import sql

from headrace.model.schema import Column, LogicalType

__all__ = ["asked", "can_be_told", "read"]

_T = LogicalType
_AS_IT_IS = "{0}"
# By the type's output function: a cast would cut the blanks of a char(n) and add a mask to an address.
_PRINTED = "CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END"
_DAYS = "CASE WHEN isfinite({0}) THEN ({0} - date '1970-01-01')::text ELSE {0}::text END"
_MICROS = "trunc(extract(epoch FROM {0}) * 1000000)::text"
_STAMP = f"CASE WHEN isfinite({{0}}) THEN {_MICROS} ELSE {{0}}::text END"
_ELEMENTS = "to_jsonb({0}::text[])"
_LAST_US = 2**63 - 2
"""The last microsecond that records can tell."""


def _number_or_infinity(value: str) -> int | str:
    return value if value.endswith("infinity") else int(value)


def _stamp(value: str) -> int | str:
    told = _number_or_infinity(value)
    if isinstance(told, int) and told > _LAST_US:
        raise ValueError("a timestamp that no record can tell")
    return told


def _same(value: Any) -> Any:
    return value


_SCALARS: Mapping[LogicalType, tuple[str, Callable[[Any], Any]]] = {
    **dict.fromkeys((_T.BOOLEAN, _T.INT16, _T.INT32, _T.INT64, _T.BYTES), (_AS_IT_IS, _same)),
    **dict.fromkeys((_T.TEXT, _T.UUID, _T.ENUM, _T.JSON, _T.NUMERIC, _T.OTHER), (_PRINTED, _same)),
    **dict.fromkeys((_T.FLOAT32, _T.FLOAT64), (_PRINTED, float)),
    _T.DATE: (_DAYS, _number_or_infinity),
    _T.TIME: (_MICROS, int),
    _T.TIMESTAMP: (_STAMP, _stamp),
}
_ARRAYS: Mapping[LogicalType, Callable[[Any], Any]] = {
    **dict.fromkeys((_T.TEXT, _T.UUID, _T.ENUM, _T.NUMERIC), _same),
    **dict.fromkeys((_T.INT16, _T.INT32, _T.INT64), int),
    **dict.fromkeys((_T.FLOAT32, _T.FLOAT64), float),
    _T.BOOLEAN: lambda text: text == "true",
}
_NOT_TOLD = ("money", "hstore", "geometry", "geography", "vector", "halfvec", "sparsevec", "tstzrange")
"""Types whose text depends on settings, or that records bring in another form."""


def can_be_told(column: Column, base: str) -> bool:
    """Return whether a computed column's values can be looked up as records would bring them.

    Args:
        column: The column.
        base: ``pg_type.typname`` of what its type, or that of its elements, is based on.
    """
    if base in _NOT_TOLD:
        return False
    if not column.dimensions:
        return column.type in _SCALARS
    # A cast of its elements would cut the blanks of a char(n).
    return column.dimensions == 1 and column.type in _ARRAYS and base != "bpchar"


def asked(column: Column, name: sql.Composable) -> sql.Composed:
    """Return the expression that asks for the column's value; a percent sign in it stands for itself."""
    told = _ELEMENTS if column.dimensions else _SCALARS[column.type][0]
    return sql.SQL(told).format(name)


def read(column: Column, value: Any) -> Any:
    """Return what was answered as the logical value of the column's type; arrays of arrays stay texts.

    Raises:
        ValueError: When it is none.
    """
    if value is None:
        return None
    if not column.dimensions:
        return _SCALARS[column.type][1](value)
    convert = _ARRAYS[column.type]
    return [item if item is None or isinstance(item, list) else convert(item) for item in value]
