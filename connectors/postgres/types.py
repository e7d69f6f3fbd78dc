"""What each Postgres type means, as far as the connector delivers it faithfully."""

from __future__ import annotations

from headrace.model.schema import LogicalType

__all__ = ["array_limit", "logical_type", "numeric_digits"]

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

_ARRAYS = frozenset(
    {
        *("bool", "int2", "int4", "int8", "float4", "float8", "numeric"),
        *("text", "varchar", "bpchar", "citext", "uuid"),
        *("date", "time", "timestamp", "timestamptz"),
        *("inet", "cidr", "macaddr"),
    }
)
_ARRAY_LIMITS = {
    "numeric": "an array with NaN or infinity arrives as NULL",
    "date": "infinity inside an array arrives as a date",
    "time": "24:00 inside an array arrives as 00:00",
    "timestamp": "infinity inside an array arrives as a timestamp",
}
_ENUM_ARRAY_LIMIT = "an array with a NULL inside arrives as NULL"


def logical_type(name: str, kind: str, *, element: bool = False) -> LogicalType | None:
    """Return the meaning of a type, None when the connector does not deliver it faithfully.

    Args:
        name: ``pg_type.typname``.
        kind: ``pg_type.typtype``.
        element: True for the element type of an array.
    """
    if kind == "e":
        return LogicalType.ENUM
    if element and name not in _ARRAYS:
        return None
    return _TYPES.get(name)


def array_limit(name: str, kind: str) -> str:
    """Return which arrays of a captured element type the connector does not deliver as they are."""
    return _ENUM_ARRAY_LIMIT if kind == "e" else _ARRAY_LIMITS.get(name, "")


def numeric_digits(typmod: int) -> tuple[int | None, int | None]:
    """Return precision and scale of a numeric's type modifier; None when not declared."""
    if typmod < 4:
        return None, None
    packed = typmod - 4
    return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400
