"""Debezium's record → a change, a control record or a poison.

The wire format is JSON without schemas, so the meaning of a value comes from the catalogue
(:class:`TableSchema`), with the connector's ``decimal.handling.mode=string``,
``time.precision.mode=microseconds`` and ``binary.handling.mode=bytes``, base64 in JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import md5
from typing import Any, Protocol
from uuid import UUID

import msgspec
import orjson
from msgspec.structs import replace

from connectors.conversions import Lost, array, converter
from headrace.model.change import Change, Ignored, Op, Origin, Poison, Record, Truncate
from headrace.model.key import Key
from headrace.model.position import Position
from headrace.model.schema import Column, TableSchema
from headrace.model.values import key_reader

__all__ = ["TOO_LARGE", "Decoder", "Drift", "Placed", "lsn_of"]

TOO_LARGE = "RECORD_TOO_LARGE"

_WRONG = (KeyError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What values that are not what they should be make the decoding raise."""

Image = str | bytes | None
"""A row as JSON text."""

_STREAMED = (None, "false")
_NO_FIELDS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Drift:
    """How a record's columns differ from the schema they are decoded with.

    Args:
        added: Columns that the schema does not have; their values are passed over.
        missing: Columns that the record does not have.
        key: The columns of the record's key, when they are others than the schema's.
    """

    added: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Say it in words."""
        facts = (("columns added", self.added), ("columns missing", self.missing), ("key now", self.key))
        return "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in facts if names)


class Placed(Protocol):
    """What has a place in Kafka."""

    @property
    def topic(self) -> str:
        """Its topic."""
        ...

    @property
    def partition(self) -> int:
        """Its partition there."""
        ...

    @property
    def offset(self) -> int:
        """Its offset there."""
        ...


class Decoder:
    """Decodes the records of one topic.

    Attributes:
        drift: How the newest row image differs from the schema; None when it does not.

    Args:
        schema: The table's catalogue.
        epoch: Incarnation of the topic.
        placeholder: What the connector writes for a value it was not sent (unchanged TOAST). It is
            a random token per source, so that no user value is taken for it.
        strict: Whether a row with other columns than the schema's is refused.
    """

    def __init__(self, schema: TableSchema, epoch: int, placeholder: str, *, strict: bool = False) -> None:
        self._schema = schema
        self._epoch = epoch
        self._placeholder = placeholder
        self._strict = strict
        self._in_base64 = base64.b64encode(placeholder.encode()).decode()
        self._marks: tuple[Any, ...] = (
            placeholder,
            self._in_base64,
            [placeholder],
            [self._in_base64],
            list(placeholder.encode()),
            [_java_uuid(placeholder)],
            f'{{"{placeholder}":"{placeholder}"}}',
        )
        traces = (
            placeholder,
            self._in_base64,
            _java_uuid(placeholder),
            ",".join(map(str, placeholder.encode()[:8])),
        )
        self._traces: dict[type, tuple[Any, ...]] = {str: traces, bytes: tuple(t.encode() for t in traces)}
        self._key_names = frozenset(schema.key)
        self._key_start = b"{" + orjson.dumps(schema.key[0]) + b":" if len(schema.key) == 1 else b"?"
        self.drift: Drift | None = None
        self._key_of = key_reader(schema)
        self._names = tuple(column.name for column in schema.told)
        self._familiar = frozenset((*self._names, *schema.former))
        self._converters = [
            (column.name, convert) for column in schema.told if (convert := self._conversion(column))
        ]

    def decode(
        self, origin: Origin, op: str | None, before: Image, after: Image, key: bytes | None = None
    ) -> Record:
        """Return what the record says; never raises.

        Args:
            origin: Where the record came from.
            op: ``c``, ``u``, ``r``, ``d``, ``t`` or anything else, None when there is no envelope.
            before: The old row, or its key, as JSON text.
            after: The new row as JSON text.
            key: The record's own key, for records without an envelope and for those whose key may have
                other columns than the schema's.
        """
        try:
            record = self._rekeyed(origin, op, key) or self._decode(origin, op, before, after)
        except _WRONG as error:
            record = Poison(origin, "RECORD_MALFORMED", self._complaint(error, after or before))
        if isinstance(record, Poison):
            return replace(record, key=self._told_key(after or before) or self._told_key(key))
        return record

    def decode_raw(self, place: Placed, key: bytes | None, value: bytes | None) -> Record:
        """Return what a record says whose envelope is not split yet, such as a dead letter; never raises.

        Args:
            place: Where it came from; all else of its origin is taken from the envelope.
            key: The record's key as it is in Kafka.
            value: Its value as it is there.
        """
        if value is None:
            return Ignored(Origin(place.topic, place.partition, place.offset), "tombstone")
        try:
            envelope = _split(value)
            before, after = _image(envelope.before), _image(envelope.after)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            origin = Origin(place.topic, place.partition, place.offset)
            return Poison(origin, "RECORD_MALFORMED", str(error)[:500], self._told_key(key))
        source = envelope.source or _NO_SOURCE
        origin = Origin(
            place.topic,
            place.partition,
            place.offset,
            source.lsn,
            source.tx,
            source.ts_ms,
            source.snapshot not in _STREAMED,
        )
        if envelope.too_large is not None:
            return self._too_large(origin, envelope.op, envelope.too_large, key)
        return self.decode(origin, envelope.op, before, after, key)

    def _complaint(self, error: Exception, image: Image) -> str:
        """Return what is wrong with a row, by column, without any of its content."""
        if isinstance(error, KeyError):
            return f"column {error} is missing"
        with suppress(*_WRONG):
            row = orjson.loads(image or b"")
            for name, convert in self._converters:
                try:
                    if row.get(name) is not None:
                        convert(row[name])
                except Lost as lost:
                    return f"column “{name}”: {lost}"
                except _WRONG:
                    return f"column “{name}” holds no {self._schema.by_name[name].type.value}"
        return f"the row cannot be read ({type(error).__name__})"

    def _too_large(self, origin: Origin, op: str | None, size: int, key: bytes | None) -> Record:
        """Return what a record says that the converter had to empty: a delete needs no more than its key."""
        named = self._told_key(key)
        if op == "d" and named is not None:
            position = Position(self._epoch, origin.offset, origin.partition)
            return Change(self._schema.table, named, Op.DELETE, {}, _NO_FIELDS, position, origin)
        reason = f"the record has {size:,} bytes, more than the source's max_record_bytes"
        return Poison(origin, TOO_LARGE, reason, named)

    def _rekeyed(self, origin: Origin, op: str | None, key: bytes | None) -> Poison | None:
        """Refuse a row that the source tells from others by other columns than the schema says."""
        if not key or op not in ("c", "u", "r", "d"):
            return None
        if key.startswith(self._key_start) and key.count(b":") == 1:
            return None  # no second column follows
        try:
            image = orjson.loads(key)
        except orjson.JSONDecodeError:
            return None  # the row tells its key, too
        if not isinstance(image, dict) or image.keys() == self._key_names:
            return None
        names = tuple(image)
        self.drift = Drift(key=names)
        return Poison(origin, "KEY_CHANGED", f"the key is ({', '.join(names)}) now")

    def _told_key(self, image: str | bytes | None) -> Key | None:
        """Return the key of a broken record's row, if so much of it can be read."""
        try:
            return self._key(orjson.loads(image or b""))
        except _WRONG:
            return None

    def _key(self, image: Mapping[str, Any]) -> Key:
        return self._key_of({name: self._scalar(name, image[name]) for name in self._schema.key})

    def _decode(self, origin: Origin, op: str | None, before: Image, after: Image) -> Record:
        position = Position(self._epoch, origin.offset, origin.partition)
        if op in ("c", "u", "r"):
            if after is None:
                return Poison(origin, "RECORD_WITHOUT_ROW", f"op {op!r} carries no row image")
            row = orjson.loads(after)
            absent = _NO_FIELDS
            one, two, three, four = self._traces[type(after)]
            if one in after or two in after or three in after or four in after:
                absent = frozenset(name for name, value in row.items() if value in self._marks)
            row = self._row(row, absent)
            if self._strict and self.drift is not None:
                return Poison(origin, "SCHEMA_CHANGED", self.drift.sentence)
            key = self._key_of(row)
            return Change(self._schema.table, key, Op.UPSERT, row, absent, position, origin)
        if op == "d":
            if before is None:
                return Poison(origin, "DELETE_WITHOUT_KEY", "a delete carries no key")
            key = self._key(orjson.loads(before))
            return Change(self._schema.table, key, Op.DELETE, {}, _NO_FIELDS, position, origin)
        if op == "t":
            return Truncate(self._schema.table, position, origin)
        if op == "m":
            return Ignored(origin, "logical message")
        if op is None:
            return Poison(origin, "RECORD_MALFORMED", "this is no envelope")
        return Poison(origin, "RECORD_UNKNOWN", f"op is {op!r}")

    def _row(self, image: Mapping[str, Any], absent: frozenset[str]) -> dict[str, Any]:
        if not absent and type(image) is dict and tuple(image) == self._names:
            row, self.drift = image, None
        else:
            row = self._known(image, absent)
        for name, convert in self._converters:
            value = row.get(name)
            if value is not None:
                row[name] = convert(value)
        return row

    def _known(self, image: Mapping[str, Any], absent: frozenset[str]) -> dict[str, Any]:
        row = {name: image[name] for name in self._names if name in image and name not in absent}
        self.drift = None
        if len(row) + len(absent) != len(self._names) or len(image) != len(self._names):
            added, missing = image.keys() - self._familiar, frozenset(self._names) - image.keys()
            if added or missing:
                self.drift = Drift(tuple(added), tuple(missing))
        return row

    def _conversion(self, column: Column) -> Callable[[Any], Any] | None:
        convert = converter(column)
        return array(convert, in_key=column.name in self._key_names) if column.dimensions else convert

    def _scalar(self, name: str, value: Any) -> Any:
        convert = converter(self._schema.by_name[name])
        return value if value is None or convert is None else convert(value)


def _java_uuid(text: str) -> str:
    """Return what Java's ``UUID.nameUUIDFromBytes`` makes of a text; MD5 is no secret here."""
    return str(UUID(bytes=md5(text.encode(), usedforsecurity=False).digest(), version=3))


class _Source(msgspec.Struct, gc=False):
    lsn: int | None = None
    tx: int | None = msgspec.field(default=None, name="txId")
    ts_ms: int | None = None
    snapshot: str | None = None


class _Envelope(msgspec.Struct, gc=False):
    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")
    op: str | None = None
    source: _Source | None = None
    too_large: int | None = msgspec.field(default=None, name="headrace_too_large")


_NO_SOURCE = _Source()
_split = msgspec.json.Decoder(_Envelope).decode
"""Split a record; row images stay JSON text, as they are written."""


def _image(image: msgspec.Raw) -> bytes | None:
    text = bytes(image)
    return None if text == b"null" else text


def lsn_of(value: bytes | None) -> int | None:
    """Return the LSN that a record's envelope tells; None where there is none, as in rows that were read."""
    try:
        source = _split(value or b"{}").source
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return source.lsn if source is not None else None
