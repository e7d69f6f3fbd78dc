"""What each Postgres type means, as far as the connector delivers it faithfully."""

from __future__ import annotations

from headrace.model.schema import LogicalType

__all__ = ["CLAIMED", "array_limit", "is_list", "logical_type", "numeric_digits", "too_wide", "wants_full"]

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
    "money": _T.NUMERIC,
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
    "tsvector": _T.OTHER,
    "int4range": _T.OTHER,
    "int8range": _T.OTHER,
    "numrange": _T.OTHER,
    "tsrange": _T.OTHER,
    "tstzrange": _T.OTHER,
    "daterange": _T.OTHER,
    "vector": _T.FLOAT32,
    "halfvec": _T.FLOAT32,
    "sparsevec": _T.OTHER,
    "geometry": _T.OTHER,
    "geography": _T.OTHER,
}

_LISTS = frozenset({"vector", "halfvec"})
"""Types whose one value is a list of numbers."""

_WHEN_FULL = frozenset({"vector", "halfvec", "sparsevec", "geometry", "geography"})
"""Types whose large unchanged values arrive as NULL, unless the log holds the old row whole."""

CLAIMED = frozenset({*_WHEN_FULL, "citext", "hstore", "ltree"})
"""Names by which the connector knows the types of extensions, whatever type of whatever schema has them."""

_OWN = ("b", "r")  # base types and ranges; a table's rows may be of a type of any name

_MOST_DIMENSIONS = 32_767  # the connector counts those of a sparsevec with 16 bits

_ARRAYS = frozenset(
    {
        *("int4", "int8", "text", "varchar", "bpchar", "uuid", "json", "jsonb", "bytea", "date"),
    }
)
"""Element types whose arrays arrive as they are, or say that they are unchanged."""

_ARRAYS_WHEN_FULL = frozenset(
    {
        *("bool", "int2", "oid", "float4", "float8", "numeric", "citext", "ltree"),
        *("timestamp", "timestamptz", "inet", "cidr", "macaddr"),
    }
)
"""Element types whose large unchanged arrays arrive as NULL, unless the log holds the old row whole."""

_MOVED = (
    "an array with a time before 1582-10-26 is refused, for the connector may tell it as another; one before"
    " 1582 BC it tells as one after Christ"
)
_ZONE = "an hour that a change of clocks skips or repeats arrives as another, unless the worker's zone is UTC"
_ARRAY_LIMITS = {
    "numeric": "an array with NaN or infinity is told as NULL, so each NULL is looked up in the database",
    "date": _MOVED,
    "timestamp": f"{_MOVED}; {_ZONE}",
    "timestamptz": f"{_MOVED}; {_ZONE}",
    "ltree": "an array with a NULL inside is told as NULL, so each NULL is looked up in the database",
}
_ENUM_ARRAY_LIMIT = "an array with a NULL inside is told as NULL, so each NULL is looked up in the database"


def logical_type(
    name: str,
    kind: str,
    *,
    element: bool = False,
    full: bool = False,
    typmod: int = -1,
    domain: bool = False,
) -> LogicalType | None:
    """Return the meaning of a type, None when the connector does not deliver it faithfully.

    Args:
        name: ``pg_type.typname``.
        kind: ``pg_type.typtype``.
        element: True for the element type of an array.
        full: True when the table's replica identity is FULL.
        typmod: The type modifier.
        domain: True when the column's type is a domain over it.
    """
    if domain and element and name == "ltree":
        return None  # by its native name nobody would know that it is in doubt
    if wants_full(name, kind, element=element, domain=domain):
        if not full:
            return None
    elif element and name not in _ARRAYS:
        return None
    if too_wide(name, typmod):
        return None
    if kind == "e":
        return None if name in CLAIMED else LogicalType.ENUM
    return _TYPES.get(name) if kind in _OWN else None


def is_list(name: str) -> bool:
    """Return whether one value of a type, which is no array to Postgres, is a list of its meaning."""
    return name in _LISTS


def too_wide(name: str, typmod: int) -> bool:
    """Return whether a type may hold a vector of more dimensions than the connector can count."""
    return name == "sparsevec" and not 0 < typmod <= _MOST_DIMENSIONS


def wants_full(name: str, kind: str, *, element: bool, domain: bool = False) -> bool:
    """Return whether a type, or arrays of it, are delivered only under REPLICA IDENTITY FULL.

    The connector knows by the type's name how to say that an array is unchanged; of a domain it does not.
    """
    if element:
        return kind == "e" or name in _ARRAYS_WHEN_FULL or (domain and name in _ARRAYS)
    return name in _WHEN_FULL


def array_limit(name: str, kind: str) -> str:
    """Return which arrays of a captured element type the connector does not deliver as they are."""
    return _ENUM_ARRAY_LIMIT if kind == "e" else _ARRAY_LIMITS.get(name, "")


def numeric_digits(typmod: int) -> tuple[int | None, int | None]:
    """Return precision and scale of a numeric's type modifier; None when not declared."""
    if typmod < 4:
        return None, None
    packed = typmod - 4
    return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400
