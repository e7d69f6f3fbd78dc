"""How stores spell values, read back as logical values: as a person with a plain client would read them."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timezone
from functools import partial
from typing import Any

from headrace.model.schema import Column, LogicalType, TableSchema
from headrace.model.values import date_days, micros_of, timestamp_text

__all__ = ["embedded", "logical", "logical_reader", "single"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def single(value: float) -> float:
    """Return ``value`` rounded to single precision."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def embedded(schema: TableSchema, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a JSON document: the JSON columns in it, which are part of it, as texts again.

    A sink may wrap a JSON value as ``{"%json": …}``: one that is no object where the store takes
    objects only, and ``null``, which would pass for NULL.
    """
    row = dict(document)
    for column in schema.columns:
        value = row.get(column.name)
        if column.type is LogicalType.JSON and value is not None:
            row[column.name] = _texts(value) if column.dimensions else _text(value)
    return row


def _text(value: Any) -> str:
    wrapped = isinstance(value, dict) and value.keys() == {"%json"}
    return json.dumps(value["%json"] if wrapped else value)


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return None if value is None else _text(value)


def logical_reader(column: Column) -> Callable[[Any], Any]:
    """Return what does as :func:`logical` for the values of ``column``, NULL apart, for many of them."""
    scalar = _LOGICAL.get(column.type, str)
    return partial(_array, scalar) if column.dimensions else scalar


def logical(column: Column, value: Any) -> Any:
    """Return the logical value of what a store holds for ``column``.

    Raises:
        ValueError: When it cannot be read as a value of the column's type.
    """
    return None if value is None else logical_reader(column)(value)


def _array(scalar: Callable[[Any], Any], stored: Any) -> Any:
    return _items(scalar, json.loads(stored) if isinstance(stored, str) else stored)


def _items(scalar: Callable[[Any], Any], items: Any) -> Any:
    if hasattr(items, "tolist"):
        items = items.tolist()
    if isinstance(items, (list, tuple)):
        return [_items(scalar, item) for item in items]
    return None if items is None else scalar(items)


def _boolean(value: Any) -> Any:
    return {"true": True, "false": False}[value] if isinstance(value, str) else value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, str) else value


def _binary(value: Any) -> bytes:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(value)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _days(value: Any) -> int:
    if isinstance(value, date):
        return value.toordinal() - _EPOCH.toordinal()
    return date_days(value) if isinstance(value, str) else int(value)


def _micros(value: Any) -> int:
    if isinstance(value, datetime):
        delta = (value if value.tzinfo else value.replace(tzinfo=timezone.utc)) - _EPOCH
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    return micros_of(value) if isinstance(value, str) else int(value)


def _since_midnight(value: Any) -> int:
    if isinstance(value, time):
        return (value.hour * 3600 + value.minute * 60 + value.second) * 1_000_000 + value.microsecond
    return micros_of(f"1970-01-01T{value}") if isinstance(value, str) else int(value)


_LOGICAL: dict[LogicalType, Callable[[Any], Any]] = {
    LogicalType.BOOLEAN: _boolean,
    LogicalType.INT16: _whole,
    LogicalType.INT32: _whole,
    LogicalType.INT64: _whole,
    LogicalType.FLOAT32: lambda value: single(float(value)),
    LogicalType.FLOAT64: float,
    LogicalType.BYTES: _binary,
    LogicalType.JSON: _json,
    LogicalType.DATE: _days,
    LogicalType.TIME: _since_midnight,
    LogicalType.TIMESTAMP: _micros,
    LogicalType.TIMESTAMPTZ: lambda value: timestamp_text(_micros(value), utc=True),
}
