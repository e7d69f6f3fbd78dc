"""Changes → Arrow columns, a column at a time; a value that does not fit is named, never bent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model.change import Change
from headrace.model.outcome import Rejected
from headrace.model.schema import LogicalType
from headrace.model.values import micros_of, time_text
from sinks.delta.shape import COMMITTED_MS, KEY, LSN, METADATA, OFFSET, TX, VERSION, Field, Shape
from sinks.document import dumps
from sinks.unheld import Policy, nearest, spelled

__all__ = ["encode"]

_Values = Sequence[Any]
_FEW = 256
_UNFIT = (ValueError, TypeError, OverflowError, pa.ArrowNotImplementedError, AttributeError)
"""What Arrow and the model's parsers raise for a value that is none of the column's type."""
_LISTS = {list, tuple, type(None)}
"""Of what Arrow would take for a list: not a text, which it would take for a list of letters."""


def encode(
    shape: Shape, changes: Sequence[Change], keys: pa.Array, versions: np.ndarray
) -> tuple[pa.Table, dict[int, Rejected]]:
    """Return upserts as a table, one row each, and for each that does not fit its number and why.

    Absent columns are NULL; so are the values of rejected rows. The caller must use neither.

    Args:
        shape: The table's columns.
        changes: The upserts.
        keys: The id of each one's key.
        versions: The version of each.
    """
    rejected: dict[int, Rejected] = {}
    values = _values([change.row for change in changes], [field.column.name for field in shape.fields])
    aside: dict[int, dict[str, Any]] = {}
    columns = [
        _column(field, column, rejected, aside) for field, column in zip(shape.fields, values, strict=True)
    ]
    origins = [change.origin for change in changes]
    metadata = {
        KEY: keys,
        VERSION: versions,
        OFFSET: [origin.offset for origin in origins],
        LSN: [origin.lsn for origin in origins],
        TX: [origin.tx for origin in origins],
        COMMITTED_MS: [origin.committed_ms for origin in origins],
    }
    columns += [pa.array(metadata[field.name], field.type) for field in METADATA]
    if shape.keeps_unheld:
        kept = [dumps(aside[number]).decode() if number in aside else None for number in range(len(changes))]
        columns.append(pa.array(kept, pa.string()))
    return pa.Table.from_arrays(columns, schema=shape.arrow), rejected


def _values(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[list[Any]]:
    """Return the rows' values, a list for each name."""
    columns: list[list[Any]] = [[] for _ in names]
    take = itemgetter(*names) if len(names) > 1 else lambda row: (row[names[0]],)
    # A few rows at a time: a pass over all of them for every column would fetch each from memory again.
    for start in range(0, len(rows), _FEW):
        few = rows[start : start + _FEW]
        try:
            found = list(zip(*map(take, few), strict=True))
        except KeyError:  # of a partial change
            found = [tuple(row.get(name) for row in few) for name in names]
        for column, values in zip(columns, found, strict=True):
            column.extend(values)
    return columns


def _column(
    field: Field, values: list[Any], rejected: dict[int, Rejected], aside: dict[int, dict[str, Any]]
) -> pa.Array:
    try:
        return _nested(field, values, field.column.dimensions)
    except _UNFIT:
        fitting = list(values)
        for number, value in enumerate(values):
            if not _fits(field, value):
                fitting[number] = None
                try:
                    if field.unheld is Policy.REFUSE:
                        raise ValueError("not to be kept")
                    aside.setdefault(number, {})[field.column.name] = spelled(field.column, value)
                except ValueError:
                    rejected.setdefault(number, _why(field))
                    continue
                if field.unheld is Policy.NEAREST:
                    instead = nearest(field.column, value)
                    fitting[number] = instead if _fits(field, instead) else None
        return _nested(field, fitting, field.column.dimensions)


def _fits(field: Field, value: Any) -> bool:
    try:
        _nested(field, [value], field.column.dimensions)
    except _UNFIT:
        return False
    return True


def _why(field: Field) -> Rejected:
    kind = field.column.native or field.column.type.value
    return Rejected(
        f"DELTA_VALUE_{field.column.type.value.upper()}",
        f"A value of column “{field.column.name}” ({kind}) does not fit {field.type} unchanged.",
    )


def _nested(field: Field, values: _Values, depth: int) -> pa.Array:
    encoder = _ENCODERS.get(field.column.type, _text)
    if not depth:
        return encoder(field, values)
    if encoder is _text and depth == 1:
        if not set(map(type, values)) <= _LISTS:
            raise TypeError("no array")
        return pa.array(values, field.list_of(1))
    offsets = [0]
    flat: list[Any] = []
    for value in values:
        if value is not None:
            if not isinstance(value, (list, tuple)):
                raise TypeError("no array")
            flat.extend(value)
        offsets.append(len(flat))
    inner = _nested(field, flat, depth - 1)
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        inner,
        type=pa.list_(pa.field("element", inner.type)),
        mask=pa.array([value is None for value in values], pa.bool_()),
    )


def _integers(values: _Values, kind: pa.DataType) -> pa.Array:
    # Arrow cuts 1.5 to 1 and reads True as 1 when told the type, so it is asked what it sees first.
    seen = pa.array(values)
    if not (pa.types.is_integer(seen.type) or pa.types.is_null(seen.type)):
        raise TypeError("no integer")
    return seen.cast(kind)


def _whole(field: Field, values: _Values) -> pa.Array:
    return _integers(values, field.scalar)


def _boolean(field: Field, values: _Values) -> pa.Array:
    return pa.array(values, pa.bool_())


def _float(field: Field, values: _Values) -> pa.Array:
    return pa.array(values, pa.float64())


def _numeric(field: Field, values: _Values) -> pa.Array:
    # The cast refuses what has more digits than the type, before or behind the point, and NaN.
    return pa.array(values, pa.string()).cast(field.scalar)


def _bytes(field: Field, values: _Values) -> pa.Array:
    if any(isinstance(value, str) for value in values):
        raise TypeError("text, not bytes")
    return pa.array(values, pa.binary())


def _date(field: Field, values: _Values) -> pa.Array:
    return _integers(values, pa.int32()).cast(pa.date32())


def _time(field: Field, values: _Values) -> pa.Array:
    return pa.array([None if value is None else time_text(value) for value in values], pa.string())


def _timestamp(field: Field, values: _Values) -> pa.Array:
    return _integers(values, pa.int64()).cast(pa.timestamp("us"))


def _timestamptz(field: Field, values: _Values) -> pa.Array:
    try:
        return pa.array(values, pa.string()).cast(field.scalar)
    except pa.ArrowInvalid:
        # Years of other than four digits are beyond Arrow's parser.
        micros = [None if value is None else micros_of(value) for value in values]
        return pa.array(micros, pa.int64()).cast(field.scalar)


def _text(field: Field, values: _Values) -> pa.Array:
    return pa.array(values, pa.string())


_ENCODERS: dict[LogicalType, Callable[[Field, _Values], pa.Array]] = {
    LogicalType.BOOLEAN: _boolean,
    LogicalType.INT16: _whole,
    LogicalType.INT32: _whole,
    LogicalType.INT64: _whole,
    LogicalType.FLOAT32: _float,
    LogicalType.FLOAT64: _float,
    LogicalType.NUMERIC: _numeric,
    LogicalType.BYTES: _bytes,
    LogicalType.DATE: _date,
    LogicalType.TIME: _time,
    LogicalType.TIMESTAMP: _timestamp,
    LogicalType.TIMESTAMPTZ: _timestamptz,
}
