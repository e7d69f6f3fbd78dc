# ruff: noqa: E501
"""Values of every logical type: the awkward ones by name, and strategies that draw the rest.

They are what the contract feeds to a sink; a new logical type belongs here too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from headrace.model.schema import Column, LogicalType
from headrace.model.values import date_text, time_text

__all__ = [
    "AWKWARD_COLUMNS",
    "AWKWARD_TEXTS",
    "EDGES",
    "column_value",
    "json_text",
    "key_text_value",
    "value",
]

_DAY_US = 86_400_000_000
_DATE_DAYS = (-2_440_588, 2_145_042_540)  # 4713 BC … AD 5874897, what a Postgres date holds
_STAMP_US = (-2_440_588 * _DAY_US, 106_751_990 * _DAY_US)  # 4713 BC … AD 294246

AWKWARD_TEXTS = (
    "", " ", "null", "None", "NaN", "%null", "%empty", "%25", "a:b", "a-b", "a/b", "a\\b", "a.b", "{}", "[]", "'", '"',
    "{pk}", "*", "?", "[a-z]", "\n", "\r\n", "\t", "\x01", "\x7f", "ä", "a\u0308", "ß", "\u00a0", "\u2028", "\ufeff",
    "\uffff", "🙂", "👩‍👩‍👧", "𝒳", "__debezium_unavailable_value", "__headrace_unavailable_0123456789abcdef", "_headrace",
    '{"_headrace":"0000000000000000001"}', "x" * 40_000, "ä" * 9_000,
)  # fmt: skip
"""Texts that have broken systems like this one; two of them look like placeholders."""

AWKWARD_COLUMNS = (
    "_id", "_source", "_index", "_version", "_headrace", "_headrace_source", "_deleted", "a.b", "a", "%", "%2E", "Ä Ö",
    "select", "Upper", "upper", ".lead", "trail.", "{x}", "a:b", "a b", "🙂", '"q"', "version", "key", "row",
)  # fmt: skip
"""Column names that clash with what stores reserve, or with each other once spelled carelessly."""

EDGES: dict[LogicalType, tuple[Any, ...]] = {
    LogicalType.BOOLEAN: (True, False),
    LogicalType.INT16: (0, 1, -1, -(2**15), 2**15 - 1),
    LogicalType.INT32: (0, 1, -1, -(2**31), 2**31 - 1),
    LogicalType.INT64: (0, 1, -1, -(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1),
    LogicalType.FLOAT32: (0.0, -0.0, 1.5, 0.1, -3.4028234663852886e38, 1.401298464324817e-45, float("nan"), float("inf"), float("-inf")),
    LogicalType.FLOAT64: (0.0, 0.1, 1.7976931348623157e308, 5e-324, -1e22, float("nan"), float("inf"), float("-inf")),
    LogicalType.NUMERIC: (
        "0", "0.00", "1.10", "-1.1", "NaN", "Infinity", "-Infinity", "123456789012345678901234567890.123456789",
        "0.000000000000000000001", "1" + "0" * 400, "9" * 1000 + "." + "9" * 1000,
    ),
    LogicalType.TEXT: AWKWARD_TEXTS,
    LogicalType.UUID: ("00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    LogicalType.ENUM: ("new", "in Arbeit", "🙂", ""),
    LogicalType.JSON: (
        "null", "true", "0", "1.10", "12345678901234567890123", "0.12345678901234567890123", "[-5e-324, 1e400]", '"text"', '""', "[]", "{}", '{"a": 1, "b": [1, {"c": null}]}',
        '[1, "a", null, {"x": [[]]}]', '{"a.b": 1, "": 2, ".": 3, " ": 4, "_id": 5, "$ref": 6}', '{"%json": 1}',
        '{"a":\n 1}', '"' + "x" * 40_000 + '"', '{"a": "' + "x" * 40_000 + '"}', '{"x": 0.1, "y": 1e30, "z": "\\u00e4\\n\\u2028"}',
        "[" * 30 + "]" * 30, '{"d":' * 40 + "1" + "}" * 40, '{"mixed": [1, "a", {"b": 1}]}', '[[1], {"a": 1}, 2]',
    ),
    LogicalType.BYTES: (b"", b"\x00", bytes(range(256)), b"\xff" * 5000),
    LogicalType.DATE: (0, -1, 11_016, *_DATE_DAYS, -719_528, -719_529, 2_932_896, 2_932_897, "infinity", "-infinity"),
    LogicalType.TIME: (0, 1, 86_399_999_999, 86_400_000_000, 45_296_789_000),
    LogicalType.TIMESTAMP: (0, -1, 1_700_000_000_123_456, *_STAMP_US, -62_167_219_200_000_000, 253_402_300_800_000_000, "infinity", "-infinity"),
    LogicalType.TIMESTAMPTZ: (
        "1970-01-01T00:00:00Z", "2024-02-29T23:59:59.999999Z", "-4712-01-01T00:00:00Z", "+294276-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "infinity", "-infinity",
    ),
    LogicalType.INTERVAL: ("P0Y0M0DT0H0M0S", "P1Y2M3DT4H5M6.789S", "P-1Y-2M3DT-4H5M6S", "P178000000Y"),
    LogicalType.OTHER: ("(1,2)", "192.168.0.0/16", "'fat' & 'rat'", "POINT(1 2)", "[2024-01-01,)", "", "1:2 3:4"),
}  # fmt: skip
"""At least the edges of each type, as a :class:`~headrace.model.change.Change` row carries them."""


def _one_of(values: Sequence[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy of these values; like ``sampled_from``, but it can describe itself in a line."""
    return st.sampled_from(range(len(values))).map(lambda index: values[index])


_json_number = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_chars = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
_texts = _one_of(AWKWARD_TEXTS[:-2]) | st.text(_chars, max_size=40)
_json = st.recursive(
    st.none() | st.booleans() | _json_number | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=8,
)
_numerics = st.sampled_from(("NaN", "Infinity", "-Infinity")) | st.builds(
    lambda digits, scale: format(Decimal(digits).scaleb(-scale), "f"),
    st.integers(-(10**27), 10**27),
    st.integers(0, 27),
)

_STRATEGIES: dict[LogicalType, st.SearchStrategy[Any]] = {
    LogicalType.BOOLEAN: st.booleans(),
    LogicalType.INT16: st.integers(-(2**15), 2**15 - 1),
    LogicalType.INT32: st.integers(-(2**31), 2**31 - 1),
    LogicalType.INT64: st.integers(-(2**63), 2**63 - 1),
    LogicalType.FLOAT32: st.floats(width=32),
    LogicalType.FLOAT64: st.floats(),
    LogicalType.NUMERIC: _numerics,
    LogicalType.TEXT: _texts,
    LogicalType.UUID: st.uuids().map(str),
    LogicalType.ENUM: st.text(_chars, min_size=1, max_size=20),
    LogicalType.JSON: _json.map(json.dumps)
    | _json.map(lambda root: json.dumps(root, ensure_ascii=False, indent=1)),
    LogicalType.BYTES: st.binary(max_size=64),
    LogicalType.DATE: st.integers(*_DATE_DAYS),
    LogicalType.TIME: st.integers(0, _DAY_US),
    LogicalType.TIMESTAMP: st.integers(*_STAMP_US),
    LogicalType.TIMESTAMPTZ: st.builds(
        lambda day, micros: f"{date_text(day)}T{time_text(micros)}Z",
        st.integers(_DATE_DAYS[0], 106_751_990),
        st.integers(0, _DAY_US - 1),
    ),
    LogicalType.INTERVAL: _one_of(EDGES[LogicalType.INTERVAL]),
    LogicalType.OTHER: _texts,
}


def value(kind: LogicalType) -> st.SearchStrategy[Any]:
    """Return a strategy of non-NULL values of one type, its edges included."""
    return _one_of(EDGES[kind]) | _STRATEGIES[kind]


def column_value(column: Column) -> st.SearchStrategy[Any]:
    """Return a strategy of values of a column: NULL where it may be, arrays nested as declared."""
    strategy = value(column.type)
    if column.dimensions:
        strategy = _STRATEGIES[column.type] | _one_of([v for v in EDGES[column.type] if len(str(v)) < 2000])
    for _ in range(column.dimensions):
        strategy = st.lists(st.none() | strategy, max_size=3)
    return st.none() | strategy if column.nullable else strategy


def key_text_value() -> st.SearchStrategy[str]:
    """Return a strategy of texts as parts of keys: awkward, short, and up to a kilobyte."""
    return _texts | st.text(_chars, min_size=200, max_size=250).map(lambda text: text * 4)


def json_text() -> st.SearchStrategy[str]:
    """Return a strategy of JSON documents with any root, as text."""
    return _STRATEGIES[LogicalType.JSON]
