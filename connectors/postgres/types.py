"""What each Postgres type means, as far as the connector delivers it faithfully."""

from __future__ import annotations

from headrace.model.schema import LogicalType

__all__ = ["ARRAY_ELEMENTS", "logical_type", "numeric_digits"]

_T = LogicalType
_TYPES: dict[str, LogicalType] = {
    "bool": _T.BOOLEAN,
    "int2": _T.INT16,
    "int4": _T.INT32,
    "int8": _T.INT64,
    "oid": _T.INT64,
    "float4": _T.FLOAT32,
    "float8": _T.FLOAT64,
    "numeric": _T.NUMERIC,
    "text": _T.TEXT,
    "varchar": _T.TEXT,
    "bpchar": _T.TEXT,
    "name": _T.TEXT,
    "citext": _T.TEXT,
    "xml": _T.TEXT,
    "uuid": _T.UUID,
    "json": _T.JSON,
    "jsonb": _T.JSON,
    "hstore": _T.JSON,
    "bytea": _T.BYTES,
    "date": _T.DATE,
    "time": _T.TIME,
    "timestamp": _T.TIMESTAMP,
    "timestamptz": _T.TIMESTAMPTZ,
    "interval": _T.INTERVAL,
    "inet": _T.OTHER,
    "cidr": _T.OTHER,
    "macaddr": _T.OTHER,
    "macaddr8": _T.OTHER,
    "ltree": _T.OTHER,
    "int4range": _T.OTHER,
    "int8range": _T.OTHER,
    "numrange": _T.OTHER,
    "tsrange": _T.OTHER,
    "tstzrange": _T.OTHER,
    "daterange": _T.OTHER,
}

ARRAY_ELEMENTS = frozenset(
    {
        *("bool", "int2", "int4", "int8", "float4", "float8", "numeric"),
        *("text", "varchar", "bpchar", "citext", "uuid"),
        *("date", "time", "timestamp", "timestamptz"),
        *("inet", "cidr", "macaddr"),
    }
)
"""Element types of arrays that arrive whole; enums too."""


def logical_type(name: str, kind: str, *, element: bool = False) -> LogicalType | None:
    """Return the meaning of a type, None when the connector does not deliver it faithfully.

    Args:
        name: ``pg_type.typname``.
        kind: ``pg_type.typtype``.
        element: True for the element type of an array.
    """
    if kind == "e":
        return LogicalType.ENUM
    if element and name not in ARRAY_ELEMENTS:
        return None
    return _TYPES.get(name)


def numeric_digits(typmod: int) -> tuple[int | None, int | None]:
    """Return precision and scale of a numeric's type modifier; None when not declared."""
    if typmod < 4:
        return None, None
    packed = typmod - 4
    return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400
