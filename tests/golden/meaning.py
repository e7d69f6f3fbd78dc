"""What a golden record should decode to, computed from Postgres' own text output."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from connectors.postgres.types import is_list, logical_type, numeric_digits
from headrace.model.schema import Column, LogicalType
from headrace.model.values import date_days, micros_of, timestamp_text
from tests.golden.suite import SUITES, Suite

__all__ = ["Golden", "column_of", "expected", "goldens"]

_DATE = re.compile(r"^(\d+)-(\d\d)-(\d\d)( BC)?$")
_STAMP = re.compile(r"^(\d+-\d\d-\d\d) ([\d:.]+)(\+00)?( BC)?$")
_INTERVAL = re.compile(
    r"^(?:(-?\d+) years? ?)?(?:(-?\d+) mons? ?)?(?:(-?\d+) days? ?)?"
    r"(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?)?$"
)


@dataclass(frozen=True)
class Golden:
    """One recorded value.

    Args:
        native: The column's type as it is written.
        type: Name and kind of the type and of an array's element type, and the type's modifier.
        phase: How it was read.
        text: Postgres' output of it, or of each element; None for NULL.
        value: JSON text in the record; None when the column is not in the record at all.
    """

    native: str
    type: tuple[str, str, str | None, str | None, int]
    phase: str
    text: str | list[str | None] | None
    value: str | None

    @property
    def case(self) -> tuple[str, str]:
        """Return type and text, the same for snapshot and stream."""
        return self.native, json.dumps(self.text, ensure_ascii=False)


def goldens(*suites: Suite) -> list[Golden]:
    """Return all recorded values, of all suites when none is named."""
    lines = [line for suite in suites or SUITES for line in suite.records.read_text("utf-8").splitlines()]
    return [
        Golden(r["native"], tuple(r["type"]), r["phase"], r.get("text"), r.get("value"))
        for r in map(json.loads, lines)
    ]


def column_of(golden: Golden, *, full: bool = True) -> Column | None:
    """Return the column a source would capture it as; None when it would leave it out."""
    name, kind, element, element_kind, typmod = golden.type
    array = element is not None
    meaning = logical_type(element or name, element_kind or kind, element=array, full=full, typmod=typmod)
    if meaning is None:
        return None
    precision, scale = numeric_digits(typmod) if meaning is LogicalType.NUMERIC else (None, None)
    dimensions = int(array or is_list(name))
    return Column("v", meaning, dimensions, True, golden.native, precision, scale)


def expected(column: Column, text: str | list[str | None] | None) -> Any:
    """Return the logical value."""
    if isinstance(text, str) and column.dimensions:
        return [_scalar(column.type, one) for one in text.strip("[]").split(",")]
    if isinstance(text, list):
        return [None if one is None else _scalar(column.type, one) for one in text]
    return None if text is None else _scalar(column.type, text)


def _scalar(kind: LogicalType, text: str) -> Any:
    match kind:
        case LogicalType.BOOLEAN:
            return text == "t"
        case LogicalType.INT16 | LogicalType.INT32 | LogicalType.INT64:
            return int(text)
        case LogicalType.FLOAT32 | LogicalType.FLOAT64:
            return float(text)
        case LogicalType.NUMERIC:
            return text.replace("$", "").replace(",", "")
        case LogicalType.BYTES:
            return bytes.fromhex(text.removeprefix("\\x"))
        case LogicalType.DATE:
            return _date(text)
        case LogicalType.TIME:
            return micros_of(f"1970-01-01 {text}")
        case LogicalType.TIMESTAMP:
            return _stamp(text)
        case LogicalType.TIMESTAMPTZ:
            micros = _stamp(text)
            return micros if isinstance(micros, str) else timestamp_text(micros, utc=True)
        case LogicalType.INTERVAL:
            return text if text == "infinity" else _interval(text)
        case _:
            return text


def _date(text: str) -> int | str:
    match = _DATE.match(text)
    if match is None:
        return text
    year = 1 - int(match[1]) if match[4] else int(match[1])
    spelled = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return date_days(f"{spelled}-{match[2]}-{match[3]}")


def _stamp(text: str) -> int | str:
    match = _STAMP.match(text)
    if match is None:
        return text
    days = _date(match[1] + (match[4] or ""))
    assert isinstance(days, int)
    return days * 86_400_000_000 + micros_of(f"1970-01-01 {match[2]}")


def _interval(text: str) -> str:
    match = _INTERVAL.match(text)
    assert match is not None, text
    years, months, days = (int(match[n] or 0) for n in (1, 2, 3))
    sign = "-" if match[4] == "-" else ""
    hours, minutes, seconds = (int(match[n] or 0) for n in (5, 6, 7))
    fraction = f".{match[8].rstrip('0')}" if match[8] else ""

    def signed(number: int, more: str = "") -> str:
        return f"{sign}{number}{more}" if number or more else "0"

    time = f"T{signed(hours)}H{signed(minutes)}M{signed(seconds, fraction)}S"
    return f"P{years}Y{months}M{days}D{time}"
