"""Arrow columns → the logical values they were made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from headrace.model.schema import LogicalType
from headrace.model.values import timestamp_text
from sinks.base import Stored
from sinks.delta.shape import KEY, UNHELD, VERSION, Field, Shape
from sinks.unheld import original

__all__ = ["decode"]


def decode(shape: Shape, table: pa.Table) -> Iterator[Stored]:
    """Yield every row of a table that has the shape's columns."""
    keys, versions = table[KEY].to_pylist(), table[VERSION].to_pylist()
    names = [field.column.name for field in shape.fields]
    columns = [_values(field, table[field.name].combine_chunks()) for field in shape.fields]
    kept = table[UNHELD].to_pylist() if shape.keeps_unheld else [None] * len(keys)
    known = {field.column.name: field.column for field in shape.fields}
    for number, (key, version) in enumerate(zip(keys, versions, strict=True)):
        row = {n: c[number] for n, c in zip(names, columns, strict=True)}
        if (text := kept[number]) is not None:
            told = json.loads(text)
            row |= {name: original(known[name], value) for name, value in told.items() if name in known}
        yield Stored(key, row, version)


def _values(field: Field, column: pa.Array) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in _values(field, chunk)]
    return _nested(field, column, field.column.dimensions)


def _nested(field: Field, array: pa.Array, depth: int) -> list[Any]:
    if not depth:
        return _DECODERS.get(field.column.type, _plain)(array)
    flat = iter(_nested(field, array.flatten(), depth - 1))
    lengths = array.value_lengths().to_pylist()
    return [None if length is None else [next(flat) for _ in range(length)] for length in lengths]


def _plain(array: pa.Array) -> list[Any]:
    return list(array.to_pylist())


def _numeric(array: pa.Array) -> list[Any]:
    return list(array.cast(pa.string()).to_pylist())


def _date(array: pa.Array) -> list[Any]:
    return list(array.cast(pa.int32()).to_pylist())


def _timestamp(array: pa.Array) -> list[Any]:
    return list(array.cast(pa.int64()).to_pylist())


def _timestamptz(array: pa.Array) -> list[Any]:
    micros = array.cast(pa.int64()).to_pylist()
    return [None if value is None else timestamp_text(value, utc=True) for value in micros]


def _time(array: pa.Array) -> list[Any]:
    return [None if text is None else _micros(text) for text in array.to_pylist()]


def _micros(text: str) -> int:
    whole, _, fraction = text.partition(".")
    hours, minutes, seconds = map(int, whole.split(":"))
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + int(fraction.ljust(6, "0") or 0)


_DECODERS: dict[LogicalType, Callable[[pa.Array], list[Any]]] = {
    LogicalType.NUMERIC: _numeric,
    LogicalType.DATE: _date,
    LogicalType.TIMESTAMP: _timestamp,
    LogicalType.TIMESTAMPTZ: _timestamptz,
    LogicalType.TIME: _time,
}
