"""Logical values: their faithful text forms and the canonical form two equal values share.

Dates and timestamps are proleptic Gregorian and are computed, not taken from ``datetime``, because
Postgres' years reach far past 9999 and before 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from headrace.model.key import Key
from headrace.model.schema import Column, LogicalType, TableSchema

__all__ = [
    "canonical",
    "canonical_reader",
    "canonical_row",
    "date_days",
    "date_text",
    "key_of",
    "key_reader",
    "key_text",
    "micros_of",
    "time_text",
    "timestamp_text",
]

_DAY_US = 86_400_000_000
_INFINITE = ("infinity", "-infinity")
_DATE = re.compile(r"^([+-]?\d{4,})-(\d\d)-(\d\d)$")
_STAMP = re.compile(
    r"^([+-]?\d{4,}-\d\d-\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?(Z|[+-]\d\d(?::?\d\d)?)?$"
)


def date_text(days: int) -> str:
    """Return the ISO-8601 date ``days`` after 1970-01-01; years outside 0–9999 carry a sign."""
    z = days + 719_468
    era, doe = divmod(z, 146_097)
    yoe = (doe - doe // 1460 + doe // 36_524 - doe // 146_096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    day = doy - (153 * mp + 2) // 5 + 1
    month = mp + 3 if mp < 10 else mp - 9
    year = yoe + era * 400 + (1 if month <= 2 else 0)
    text = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{text}-{month:02d}-{day:02d}"


def date_days(text: str) -> int:
    """Invert :func:`date_text`.

    Raises:
        ValueError: When ``text`` is no ISO-8601 date.
    """
    match = _DATE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no date")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    year -= month <= 2
    era, yoe = divmod(year, 400)
    doy = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    doe = yoe * 365 + yoe // 4 - yoe // 100 + doy
    return era * 146_097 + doe - 719_468


def time_text(micros: int) -> str:
    """Return ``HH:MM:SS[.ffffff]``; 24:00:00 is kept as such."""
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def timestamp_text(micros: int, *, utc: bool = False) -> str:
    """Return ``YYYY-MM-DDTHH:MM:SS[.ffffff]`` with a trailing ``Z`` when ``utc``."""
    days, rest = divmod(micros, _DAY_US)
    return f"{date_text(days)}T{time_text(rest)}{'Z' if utc else ''}"


def micros_of(text: str) -> int:
    """Return the microseconds since 1970-01-01 of an ISO-8601 timestamp; a zone is applied.

    Raises:
        ValueError: When ``text`` is no such timestamp.
    """
    match = _STAMP.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no timestamp")
    micros = date_days(match[1]) * _DAY_US
    micros += (int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4] or 0)) * 1_000_000
    micros += int((match[5] or "0").ljust(6, "0"))
    zone = match[6]
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        offset = (int(digits[:2]) * 3600 + int(digits[2:]) * 60) * 1_000_000
        micros -= offset if zone[0] == "+" else -offset
    return micros


def _numeric(value: Any) -> str:
    number = Decimal(str(value))
    if not number.is_finite():
        return "NaN" if number.is_nan() else ("Infinity" if number > 0 else "-Infinity")
    if number == 0:
        return "0"
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    power = int(exponent) + len(digits) - len(text)
    return f"{'-' if sign else ''}{text}e{power}"


class _Number(str):
    """A JSON number as it was written: neither rounded to a double nor limited in length."""

    __slots__ = ()


def _json(value: Any) -> str:
    if isinstance(value, _Number):
        return _numeric(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_json(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value)


def _float(value: Any) -> str:
    number = float(value)
    return repr(number + 0.0) if number else "0.0"


def _instant(value: Any) -> str:
    return str(value) if value in _INFINITE else timestamp_text(micros_of(value), utc=True)


def _count(value: Any) -> Any:
    if not isinstance(value, int) and value not in _INFINITE:
        raise TypeError("no number")
    return value


_CANONICAL: dict[LogicalType, Callable[[Any], Any]] = {
    LogicalType.NUMERIC: _numeric,
    LogicalType.FLOAT32: _float,
    LogicalType.FLOAT64: _float,
    LogicalType.TIMESTAMPTZ: _instant,
    LogicalType.BYTES: lambda value: bytes(value).hex(),
    LogicalType.JSON: lambda value: _json(json.loads(value, parse_int=_Number, parse_float=_Number)),
    LogicalType.BOOLEAN: bool,
    LogicalType.DATE: _count,
    LogicalType.TIMESTAMP: _count,
}


def canonical_reader(column: Column) -> Callable[[Any], Any]:
    """Return what gives the :func:`canonical` form of a column's values, NULL apart, for many of them."""
    scalar = _CANONICAL.get(column.type, _same)
    return partial(_nested, scalar) if column.dimensions else scalar


def canonical(column: Column, value: Any) -> Any:
    """Return a JSON-ready form that is equal exactly when the two values are the same data."""
    return None if value is None else canonical_reader(column)(value)


def _same(value: Any) -> Any:
    return value


def _nested(scalar: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_nested(scalar, item) for item in value]
    return None if value is None else scalar(value)


def canonical_row(schema: TableSchema, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the canonical form of a whole row, columns in catalogue order, missing as None."""
    return {column.name: canonical(column, row.get(column.name)) for column in schema.columns}


def _boolean(value: Any) -> str:
    return "true" if value else "false"


def _plain(value: Any) -> str:
    number = Decimal(str(value))
    if not number.is_finite():
        return _numeric(value)
    return format(number.normalize() if number else Decimal(0), "f")


def _or_infinite(spell: Callable[[int], str]) -> Callable[[Any], str]:
    return lambda value: str(value) if value in _INFINITE else spell(value)


_KEY_TEXT: dict[LogicalType, Callable[[Any], str]] = {
    LogicalType.BOOLEAN: _boolean,
    LogicalType.NUMERIC: _plain,
    LogicalType.DATE: _or_infinite(date_text),
    LogicalType.TIMESTAMP: _or_infinite(timestamp_text),
    LogicalType.TIME: time_text,
    **{
        kind: _CANONICAL[kind]
        for kind in (LogicalType.TIMESTAMPTZ, LogicalType.BYTES, LogicalType.FLOAT32, LogicalType.FLOAT64)
    },
}


def key_text(column: Column, value: Any) -> str | None:
    """Return the text that stands for ``value`` in a key: equal values, equal text.

    Dates and times are spelled out, numerics lose trailing zeros, bytes are hexadecimal.
    """
    return None if value is None else _KEY_TEXT.get(column.type, str)(value)


def key_reader(schema: TableSchema) -> Callable[[Mapping[str, Any]], Key]:
    """Return what gives the key of a row of the table as :func:`key_of` does, for many rows."""
    spelled = [(column.name, _KEY_TEXT.get(column.type, str)) for column in schema.key_columns]
    if len(spelled) == 1:
        ((name, spell),) = spelled

        def read_one(row: Mapping[str, Any]) -> Key:
            value = row[name]
            return Key((None if value is None else spell(value),))

        return read_one

    def read(row: Mapping[str, Any]) -> Key:
        values = [(spell, row[name]) for name, spell in spelled]
        return Key(tuple([None if value is None else spell(value) for spell, value in values]))

    return read


def key_of(schema: TableSchema, row: Mapping[str, Any]) -> Key:
    """Return the key of a row or of a key record.

    Raises:
        KeyError: When a key column is missing from ``row``.
    """
    by_name = schema.by_name
    return Key.of([key_text(by_name[name], row[name]) for name in schema.key])
