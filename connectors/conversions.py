"""What a value of the connector's JSON means: to the logical value of its column's type."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from connectors.doubt import SURE_DAY, folded
from connectors.structures import output
from headrace.model.schema import Column, LogicalType

__all__ = ["Lost", "array", "converter", "each"]


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


def each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the conversion of every value in nested lists."""

    def nested(value: Any) -> Any:
        if isinstance(value, list):
            return [nested(item) for item in value]
        return None if value is None else convert(value)

    return nested


class Lost(ValueError):
    """A value that is wrong in a way that can be told without showing it."""


def array(convert: Callable[[Any], Any] | None, *, in_key: bool = False) -> Callable[[Any], Any] | None:
    """Return the conversion of an array, given that of its elements; None where it is right as it comes.

    What may be one of several dimensions is passed on, to be looked up (:mod:`connectors.doubt`); not in a
    key, by which the row would have to be asked for.
    """
    nested = each(convert) if convert else None

    def whole(value: Any) -> Any:
        if folded(value):
            if in_key:
                raise Lost("an array in the key that may be one of several dimensions")
            return value
        return nested(value) if nested else value

    return whole if nested or in_key else None


_NUMERIC = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
_FOREVER, _NEVER = "infinity", "-infinity"

_FIRST_DAY, _LAST_DAY = -2_440_588, 2_145_042_905  # what a Postgres date holds
_DAYS = {2_146_033_979: _FOREVER, -622_191_234: _FOREVER, -2_147_472_691: _NEVER, -625_821_272: _NEVER}
"""Infinite dates, as the stream and as a snapshot have them."""

_FIRST_US, _LAST_US = -210_866_803_200_000_000, 2**63 - 2
_STAMPS = {2**63 - 1: _FOREVER, -(2**63): _NEVER}


def _numeric(value: Any) -> str:
    return _NUMERIC.get(value) or str(value)


def _rounded(value: Any) -> str:
    """Return a number that has no digits behind its point without those that the connector adds."""
    text = _numeric(value)
    return text.rstrip("0").removesuffix(".") if "." in text else text


def _days(value: int) -> int | str:
    if type(value) is not int:
        raise TypeError("a date is a number of days")
    if _FIRST_DAY <= value <= _LAST_DAY:
        return value
    if value not in _DAYS:
        raise Lost("a date beyond what Postgres holds")
    return _DAYS[value]


def _stamp(value: int) -> int | str:
    if type(value) is not int:
        raise TypeError("a timestamp is a number of microseconds")
    if _FIRST_US <= value <= _LAST_US:
        return value
    if value not in _STAMPS:
        raise Lost("a timestamp beyond the year 294246, which the connector has lost")
    return _STAMPS[value]


_SURE_TEXT = "1582-10-26"
_MOVED = "a time before 26 October 1582 inside an array, which the connector may tell as another"


def _sure_days(value: int) -> int | str:
    day = _days(value)
    if isinstance(day, int) and day < SURE_DAY:
        raise Lost(_MOVED)
    return day


def _sure_stamp(value: int) -> int | str:
    stamp = _stamp(value)
    if isinstance(stamp, int) and stamp < SURE_DAY * 86_400_000_000:
        raise Lost(_MOVED)
    return stamp


_FAR = re.compile(r"\+(\d+)-")
_LAST_YEAR, _NEVER_YEAR = 294_276, 292_269_055
"""What Postgres holds, and the year in which the connector has minus infinity."""


def _sure_instant(value: str) -> str:
    before_christ = value.startswith("-") and value != _NEVER
    if before_christ or (value[:1].isdigit() and value < _SURE_TEXT):
        raise Lost(_MOVED)
    if (far := _FAR.match(value)) and int(far[1]) > _LAST_YEAR:
        if int(far[1]) == _NEVER_YEAR:
            return _NEVER
        raise Lost("a time beyond the year 294276 inside an array, which the connector has lost")
    return value


_CONVERT_ELEMENT: dict[LogicalType, Callable[[Any], Any]] = {
    LogicalType.DATE: _sure_days,
    LogicalType.TIMESTAMP: _sure_stamp,
    LogicalType.TIMESTAMPTZ: _sure_instant,
}
_CONVERT: dict[LogicalType, Callable[[Any], Any]] = {
    LogicalType.BYTES: _bytes,
    LogicalType.FLOAT32: float,
    LogicalType.FLOAT64: float,
    LogicalType.NUMERIC: _numeric,
    LogicalType.DATE: _days,
    LogicalType.TIMESTAMP: _stamp,
    LogicalType.OTHER: output,
}


def converter(column: Column) -> Callable[[Any], Any] | None:
    """Return how a column's values are converted; None where they are right as they come."""
    if column.type is LogicalType.NUMERIC and column.scale is not None and column.scale < 0:
        return _rounded
    if column.dimensions and column.type in _CONVERT_ELEMENT:
        return _CONVERT_ELEMENT[column.type]
    return _CONVERT.get(column.type)
