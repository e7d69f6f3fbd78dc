"""A row as a JSON document, spelled one way for every store that keeps JSON, and read back exactly.

| logical type | in the document |
|---|---|
| boolean, integers, text, uuid, enum, interval, other | as they are |
| numeric | string, Postgres' own spelling |
| float | number; ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, which JSON has no numbers for |
| json | the document itself, number spellings included |
| bytes | base64 |
| date, time, timestamp, timestamptz | ISO-8601; ``"infinity"`` and ``"-infinity"`` |
| array | nested array |
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, TypeVar

import msgspec
import orjson

from headrace.model.schema import Column, LogicalType, TableSchema
from headrace.model.values import date_days, date_text, micros_of, time_text

__all__ = [
    "CONVERSION_ERRORS",
    "BadValue",
    "Document",
    "Literal",
    "checked_json",
    "converter",
    "dumps",
    "exact",
    "json_text",
    "percent",
    "readable",
    "reader",
]

_ENCODER = msgspec.json.Encoder()
_dumps_into = _ENCODER.encode_into
dumps = _ENCODER.encode
"""Return the JSON of what :meth:`Document.encode` gives."""

CONVERSION_ERRORS = (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError)
"""What converting a value of another type, or spelling it, may raise."""


_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a timestamp without a zone is meant
_FIRST_US, _LAST_US = -719_162 * _DAY_US, 2_932_896 * _DAY_US
_TIME = re.compile(r"^(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?$")
_WRAP = "%json"
_INFINITE = ("infinity", "-infinity")
_COMMA = ord(",")
_UNSPEAKABLE = "The row holds a value that JSON has no spelling for."
_DATES_KEPT = 65_536


_Read = TypeVar("_Read")


def readable(read: Callable[[], _Read]) -> _Read | None:
    """Return what a store has, read; None where others have made of it what no row of its table can be.

    Such a row is as good as none: what tells it whole replaces it, and a delete removes it.
    """
    try:
        return read()
    except CONVERSION_ERRORS:
        return None


class BadValue(ValueError):
    """A value that is none of its column's type; the message names the column, never the value."""


class Literal(str):
    """A JSON number as it is written."""

    __slots__ = ()


class _Repeating(dict[str, Any]):
    """An object in which a key comes more than once, as Postgres' json may; ``members`` are all of them."""

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        super().__init__(members)
        self.members = members


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    return made if len(made) == len(members) else _Repeating(members)


def exact(data: bytes | str, *, whole: bool = True) -> Any:
    """Parse JSON, numbers as :class:`Literal`; if ``whole``, :func:`json_text` gives every member again."""
    kept = _object if whole else None  # else the last one of a key
    return json.loads(data, parse_int=Literal, parse_float=Literal, object_pairs_hook=kept)


def json_text(value: Any) -> str:
    """Return the JSON text of what :func:`exact` gives."""
    if isinstance(value, Literal):
        return str(value)  # encoders refuse a text that is more than that
    if isinstance(value, dict):
        members = value.members if isinstance(value, _Repeating) else value.items()
        return "{" + ",".join(f"{json.dumps(k)}:{json_text(v)}" for k, v in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value)


def percent(text: str, unsafe: re.Pattern[str]) -> str:
    """Return ``text`` with what ``unsafe`` matches percent-encoded, byte by byte."""
    return unsafe.sub(lambda match: "".join(f"%{byte:02X}" for byte in match.group().encode()), text)


class _Dates(dict[Any, str]):
    """Days → their date, spelled once; a look-up of a known one calls no Python."""

    def __missing__(self, days: Any) -> str:
        if len(self) >= _DATES_KEPT:
            self.clear()
        text: str = days if days in _INFINITE else date_text(days)
        self[days] = text
        return text


_date = _Dates().__getitem__


def _days(text: str) -> int | str:
    return text if text in _INFINITE else date_days(text)


def _micros(text: str) -> int | str:
    return text if text in _INFINITE else micros_of(text)


def _stamp(micros: int | str) -> datetime | str:
    if isinstance(micros, str):
        return _date(micros)
    if _FIRST_US <= micros < _LAST_US:
        return _EPOCH + timedelta(0, 0, micros)  # the encoder spells it, and fast
    days, rest = divmod(micros, _DAY_US)
    return f"{_date(days)}T{time_text(rest)}"


def _float(value: float) -> float | str:
    if isfinite(value):
        return value
    return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")


def _base64(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


_skipped = msgspec.json.Decoder(msgspec.Raw).decode


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def checked_json(text: str) -> msgspec.Raw:
    """Return JSON as it is written.

    Raises:
        ValueError: When it is none.
    """
    try:
        return _skipped(text)  # builds nothing of what it reads
    except msgspec.DecodeError:
        # It refuses what Postgres' json takes: escaped lone surrogates.
        json.loads(text, parse_constant=_refuse)
        return msgspec.Raw(text)


def _document_writer(roots: str, wrapped: Callable[[str], bool]) -> Callable[[str], msgspec.Raw]:
    """Return what writes documents of columns of JSON.

    Args:
        roots: What documents begin with that need no second look.
        wrapped: Says of any other whether it is wrapped.
    """

    def written(text: str) -> msgspec.Raw:
        raw = checked_json(text)
        # Asking for a character is cheaper than looking for a word.
        wrap = ("%" in text or "\\" in text) and _mentions_wrap(text)
        if wrap or text[0] not in roots or "\n" in text or "\r" in text:
            return _written(text, wrap=wrap or wrapped(text))
        return raw

    return written


_json = _document_writer("{[", lambda text: text.strip() == "null")
_json_object = _document_writer("{", lambda text: not text.lstrip().startswith("{"))


def _mentions_wrap(text: str) -> bool:
    return _WRAP in text or "\\u0025" in text


def _written(text: str, *, wrap: bool) -> msgspec.Raw:
    # A line feed can only be white space here, and would end the line of a bulk request.
    text = text.replace("\n", " ").replace("\r", " ")
    return msgspec.Raw(f'{{"{_WRAP}":{text}}}' if wrap else text)


def _unwrapped(value: Any) -> str:
    return json_text(value[_WRAP] if isinstance(value, dict) and value.keys() == {_WRAP} else value)


def _time_micros(text: str) -> int:
    match = _TIME.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no time")
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
    return seconds * 1_000_000 + int((match[4] or "").ljust(6, "0"))


_Convert = Callable[[Any], Any]

_ENCODE: dict[LogicalType, _Convert] = {
    LogicalType.FLOAT32: _float,
    LogicalType.FLOAT64: _float,
    LogicalType.JSON: _json,
    LogicalType.BYTES: _base64,
    LogicalType.DATE: _date,
    LogicalType.TIME: time_text,
    LogicalType.TIMESTAMP: _stamp,
}
_DECODE: dict[LogicalType, _Convert] = {
    LogicalType.INT16: int,
    LogicalType.INT32: int,
    LogicalType.INT64: int,
    LogicalType.FLOAT32: float,
    LogicalType.FLOAT64: float,
    LogicalType.JSON: _unwrapped,
    LogicalType.BYTES: base64.b64decode,
    LogicalType.DATE: _days,
    LogicalType.TIME: _time_micros,
    LogicalType.TIMESTAMP: _micros,
}


def _nested(convert: _Convert) -> _Convert:
    if convert is _json:
        convert = _json_object  # a document that is an array must not pass for a nested array

    def each(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [each(item) for item in value]
        return None if value is None else convert(value)

    return each


def converter(column: Column, *, objects_only: bool = False) -> _Convert | None:
    """Return what turns a column's value into one that :func:`dumps` spells rightly; None where it is one.

    Raises one of :data:`CONVERSION_ERRORS` when it is given a value of another type.
    """
    convert = _ENCODE.get(column.type)
    if objects_only and convert is _json:
        convert = _json_object
    return _nested(convert) if convert is not None and column.dimensions else convert


def _decoder(column: Column) -> _Convert:
    convert = _DECODE[column.type]
    return _nested(convert) if column.dimensions else convert


def reader(column: Column) -> _Convert:
    """Return what gives a column's value back from what :func:`converter` made of it, parsed."""
    return _decoder(column) if column.type in _DECODE else _same


def _same(value: Any) -> Any:
    return value


class Document:
    """The spelling of one table's rows.

    Args:
        schema: The table.
        rename: Column name → field name; must be injective.
        objects_only: True where a JSON column may hold objects only: any other root is stored as
            ``{"%json": root}``. So are, everywhere, the root ``null``, which would pass for NULL, a
            document that itself mentions ``%json``, and elements of arrays that are no objects.
        reserved: Fields that are no column; a column of such a name is renamed even where ``schema`` does
            not know it.
    """

    def __init__(
        self,
        schema: TableSchema,
        rename: Callable[[str], str] = str,
        *,
        objects_only: bool = False,
        reserved: tuple[str, ...] = (),
    ) -> None:
        self.fields = {column.name: rename(column.name) for column in schema.columns}
        self._rename = rename
        self._reserved = reserved
        self._renames = any(name != field for name, field in self.fields.items())
        self._names = {field: name for name, field in self.fields.items()}
        spelled = ((self.fields[c.name], converter(c, objects_only=objects_only)) for c in schema.columns)
        self._encode = [(field, convert) for field, convert in spelled if convert is not None]
        self._decode = [(c.name, _decoder(c)) for c in schema.columns if c.type in _DECODE]
        self._exact = any(column.type is LogicalType.JSON for column in schema.columns)

    def encode(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row as a dictionary that :func:`dumps` takes.

        Raises:
            BadValue: When a value is none of its column's type.
        """
        clash = self._renames
        for name in self._reserved:
            if name in row:
                clash = True
        document = self._renamed(row) if clash else dict(row)
        name = ""
        try:
            for name, convert in self._encode:
                value = document.get(name)
                if value is not None:
                    document[name] = convert(value)
        except CONVERSION_ERRORS as error:
            raise BadValue(f"Field “{name}” holds no value of its column's type.") from error
        return document

    def rest(self, row: Mapping[str, Any]) -> bytes:
        """Return the row as the rest of a JSON object that has a member before it: ``,"a":1}``.

        Raises:
            BadValue: When a value is none of its column's type.
        """
        document = self.encode(row)
        try:
            return b"," + dumps(document)[1:] if document else b"}"
        except CONVERSION_ERRORS as error:
            raise BadValue(_UNSPEAKABLE) from error

    def joined(self, heads: Iterable[bytes], rows: Iterable[Mapping[str, Any]]) -> bytearray:
        """Return :meth:`rest` of each row behind its head, all in one; the cheapest way for many rows.

        Raises:
            BadValue: When a value of any row is none of its column's type.
        """
        text = bytearray()
        encode = self.encode
        try:
            for head, row in zip(heads, rows, strict=True):
                document = encode(row)
                text += head
                brace = len(text)
                _dumps_into(document, text, brace)
                if document:
                    text[brace] = _COMMA
                else:
                    del text[brace]
        except BadValue:
            raise
        except CONVERSION_ERRORS as error:
            raise BadValue(_UNSPEAKABLE) from error
        return text

    def _renamed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        known = self.fields
        return {known.get(name) or self._rename(name): value for name, value in row.items()}

    def parse(self, data: bytes | str) -> Any:
        """Parse JSON in the way :meth:`decode` needs it: exactly where a column's type asks for that."""
        return exact(data) if self._exact else orjson.loads(data)

    def decode(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the logical row of a parsed document; fields that are no column are left out."""
        names = self._names
        row = {names[field]: value for field, value in document.items() if field in names}
        for name, convert in self._decode:
            value = row.get(name)
            if value is not None:
                row[name] = convert(value)
        return row
