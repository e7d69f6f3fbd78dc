"""Which field each column becomes: explicit, strict, and never in the way of storing a value exactly.

``_source`` keeps every value as it was sent; the mapping decides only how it can be searched. A
value beyond what a field can index (NaN, a year past 9999) stays in ``_source`` and is listed in
``_ignored``.
"""

from __future__ import annotations

from typing import Any

from headrace.model.schema import LogicalType, TableSchema
from sinks.elasticsearch.names import META_FIELD, field_of

__all__ = ["properties", "table_mapping"]

_KEYWORD_LIMIT = 8191
"""Characters; four bytes each still fit Lucene's longest term."""

_KEYWORD: dict[str, Any] = {"type": "keyword", "ignore_above": _KEYWORD_LIMIT}
_DATE: dict[str, Any] = {"type": "date", "format": "strict_date_optional_time", "ignore_malformed": True}

_FIELDS: dict[LogicalType, dict[str, Any]] = {
    LogicalType.BOOLEAN: {"type": "boolean"},
    LogicalType.INT16: {"type": "short"},
    LogicalType.INT32: {"type": "integer"},
    LogicalType.INT64: {"type": "long"},
    LogicalType.FLOAT32: {"type": "float", "ignore_malformed": True},
    LogicalType.FLOAT64: {"type": "double", "ignore_malformed": True},
    LogicalType.NUMERIC: {**_KEYWORD, "fields": {"number": {"type": "double", "ignore_malformed": True}}},
    LogicalType.TEXT: {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
    LogicalType.UUID: _KEYWORD,
    LogicalType.ENUM: _KEYWORD,
    LogicalType.JSON: {"type": "flattened", "depth_limit": 100, "ignore_above": _KEYWORD_LIMIT},
    LogicalType.BYTES: {"type": "binary"},
    LogicalType.DATE: _DATE,
    LogicalType.TIMESTAMP: _DATE,
    LogicalType.TIMESTAMPTZ: _DATE,
    LogicalType.TIME: _KEYWORD,
    LogicalType.INTERVAL: _KEYWORD,
    LogicalType.OTHER: _KEYWORD,
}

_KEPT_ONLY = {"index": False, "doc_values": False}
_META: dict[str, Any] = {
    "properties": {
        "version": {"type": "long"},
        "committed_ms": {"type": "date", "format": "epoch_millis"},
        "lsn": {"type": "long", **_KEPT_ONLY},
        "tx": {"type": "long", **_KEPT_ONLY},
        "topic": {"type": "keyword", **_KEPT_ONLY},
        "partition": {"type": "integer", **_KEPT_ONLY},
        "offset": {"type": "long", **_KEPT_ONLY},
        "unheld": {"type": "object", "enabled": False},
    },
    "dynamic": "strict",
}


def properties(schema: TableSchema) -> dict[str, Any]:
    """Return the fields of a table's columns; an array is mapped as its elements are."""
    return {field_of(column.name): _FIELDS[column.type] for column in schema.columns}


def table_mapping(schema: TableSchema) -> dict[str, Any]:
    """Return the mapping of a table's index."""
    return {
        "dynamic": "strict",
        "date_detection": False,
        "_meta": {
            "headrace": {"schema": schema.table.schema, "table": schema.table.name, "key": list(schema.key)}
        },
        "properties": {**properties(schema), META_FIELD: _META},
    }
