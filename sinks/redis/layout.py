"""How a row lies in Redis: as one JSON string, or as a hash of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import orjson
from redis.exceptions import RedisError

from headrace.model.change import Change, Op
from headrace.model.key import Key
from headrace.model.schema import Column, LogicalType, TableSchema
from sinks.document import (
    CONVERSION_ERRORS,
    BadValue,
    Document,
    checked_json,
    converter,
    dumps,
    exact,
    readable,
)
from sinks.origin import KNOWN, origin_members, place
from sinks.redis.client import Script
from sinks.redis.names import META_FIELD, SOURCE_FIELD, field_of
from sinks.redis.scripts import HASH_APPLY, JSON_APPLY

__all__ = ["HashLayout", "JsonLayout", "Layout"]

_HEAD = b'{"_headrace":"'
_LINE = b'\n{"_headrace":"%019d","_headrace_source":{%b}'
_LINE_KNOWN = _LINE.replace(b"%b", KNOWN)
_LONG = 16
"""From so many elements on, the head of a msgpack list has three bytes, not one."""

_SMALL = 4_096
"""So much of a document is read to see whose it is; a longer one is taken for what its key says."""
_SPELLED = frozenset(
    {LogicalType.INT16, LogicalType.INT32, LogicalType.INT64, LogicalType.TEXT, LogicalType.UUID}
)
_OURS = """
local found = {}
for i = 1, #KEYS do
  if %s then found[#found + 1] = KEYS[i] end
end
return found
"""
_OUR_STRINGS = _OURS % "redis.pcall('GETRANGE', KEYS[i], 0, #ARGV[1] - 1) == ARGV[1]"
_OUR_HASHES = _OURS % "redis.pcall('HEXISTS', KEYS[i], ARGV[1]) == 1"

_UPSERT, _DELETE = Op.UPSERT, Op.DELETE  # to look up a member of an enumeration takes its time
_row = attrgetter("row")
_pack = msgspec.msgpack.Encoder().encode

_VERSION = slice(len(_HEAD), len(_HEAD) + 19)


class Layout(Protocol):
    """One way of keeping rows."""

    script: Script
    merges: bool
    """Whether the script itself merges partial changes."""

    def arguments(self, changes: Sequence[Change]) -> Sequence[bytes | str]:
        """Return the script's arguments for these changes.

        Raises:
            BadValue: When a value of any change is none of its column's type.
        """
        ...

    def removals(self, version: str, count: int) -> Sequence[bytes | str]:
        """Return the script's arguments to remove so many rows that are older than ``version``."""
        ...

    def fetch(self, redis: Any, keys: Sequence[bytes | str]) -> list[tuple[int, dict[str, Any]] | None]:
        """Return version and row of each key; None where there is none of ours."""
        ...

    def versions(self, redis: Any, keys: Sequence[bytes | str]) -> list[int | None]:
        """Return the version of each key's row, and nothing else of it; None where there is none of ours."""
        ...

    def ours(self, redis: Any, keys: Sequence[bytes]) -> list[bytes]:
        """Return the keys that hold rows, which costs the server little more than to name them."""
        ...

    def named(self, redis: Any, keys: Sequence[bytes], head: int) -> list[bytes]:
        """Return the keys that hold the row they are named for, as far as that can be told.

        Args:
            redis: The client.
            keys: Which keys.
            head: How many bytes come before a row's id.
        """
        ...


class _Ids:
    """Tells the ids of rows whose key columns are spelled in one way wherever they are kept."""

    def __init__(self, schema: TableSchema) -> None:
        self.fields = [field_of(name) for name in schema.key]
        self.told = all(column.type in _SPELLED for column in schema.key_columns)

    def of(self, values: Iterable[Any]) -> bytes:
        """Return the id of a row by the values of its key columns, texts or numbers."""
        return Key(tuple([None if value is None else str(value) for value in values])).id.encode()


def _heads(changes: Iterable[Change]) -> Iterator[bytes]:
    """Yield what each document begins with, after a line feed."""
    topic, partition, where = "", -1, b""
    for change in changes:
        origin = change.origin
        if origin.partition != partition or origin.topic != topic:
            topic, partition = origin.topic, origin.partition
            where = place(topic, partition)
        lsn, tx, committed = origin.lsn, origin.tx, origin.committed_ms
        version = change.position.version
        if lsn is None or tx is None or committed is None:
            yield _LINE % (version, origin_members(origin))
        else:
            yield _LINE_KNOWN % (version, where, origin.offset, lsn, tx, committed)


class JsonLayout:
    """A string per row: ``{"_headrace":"<version>","_headrace_source":{…},<columns>}``."""

    script = Script.of(JSON_APPLY)
    merges = False

    def __init__(self, schema: TableSchema) -> None:
        self._document = Document(schema, field_of, reserved=(META_FIELD, SOURCE_FIELD))
        self._ids = _Ids(schema)

    def arguments(self, changes: Sequence[Change]) -> Sequence[bytes | str]:
        upserts = [change for change in changes if change.op is _UPSERT]
        if not upserts:
            return ("".join(["\n" + change.position.text for change in changes]),)
        lines = self._document.joined(_heads(upserts), map(_row, upserts))
        if len(upserts) == len(changes):
            return (bytes(lines),)
        rows = iter(lines.split(b"\n")[1:])
        texts = (c.position.text.encode() if c.op is _DELETE else next(rows) for c in changes)
        return (b"\n" + b"\n".join(texts),)

    def removals(self, version: str, count: int) -> Sequence[bytes | str]:
        return (f"\n{version}<" * count,)

    def value(self, change: Change) -> bytes:
        """Return the string that is to be stored for an upsert.

        Raises:
            BadValue: When a value is none of its column's type.
        """
        return bytes(self._document.joined(_heads((change,)), (change.row,))[1:])

    def fetch(self, redis: Any, keys: Sequence[bytes | str]) -> list[tuple[int, dict[str, Any]] | None]:
        return [self._row(value) for value in redis.mget(keys)] if keys else []

    def versions(self, redis: Any, keys: Sequence[bytes | str]) -> list[int | None]:
        pipeline = redis.pipeline(transaction=False)
        for key in keys:
            pipeline.getrange(key, 0, _VERSION.stop - 1)
        answers = map(_told, pipeline.execute(raise_on_error=False) if keys else [])
        return [_version(text[_VERSION]) if text and text.startswith(_HEAD) else None for text in answers]

    def ours(self, redis: Any, keys: Sequence[bytes]) -> list[bytes]:
        return list(redis.eval(_OUR_STRINGS, len(keys), *keys, _HEAD)) if keys else []

    def named(self, redis: Any, keys: Sequence[bytes], head: int) -> list[bytes]:
        pipeline = redis.pipeline(transaction=False)
        for key in keys:
            pipeline.getrange(key, 0, _SMALL - 1)
        answers = map(_told, pipeline.execute(raise_on_error=False) if keys else [])
        return [
            key
            for key, text in zip(keys, answers, strict=True)
            if text and text.startswith(_HEAD) and self._is_named(key[head:], text)
        ]

    def _is_named(self, key_id: bytes, text: bytes) -> bool:
        if not self._ids.told or len(text) == _SMALL:  # it may be longer, and no document then
            return True
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError:
            return True
        return self._ids.of(document.get(field) for field in self._ids.fields) == key_id

    def _row(self, value: bytes | None) -> tuple[int, dict[str, Any]] | None:
        if value is None or not value.startswith(_HEAD):
            return None
        return readable(lambda: (int(value[_VERSION]), self._document.decode(self._document.parse(value))))


class HashLayout:
    """A hash per row: a field per column that is not NULL, and the version beside them.

    Scalars are text, spelled as in a document but without quotes (json: the document); arrays are JSON.
    """

    script = Script.of(HASH_APPLY)
    merges = True

    def __init__(self, schema: TableSchema) -> None:
        self._write = _Columns(schema)
        self._document = Document(schema, field_of)
        self._read = {field_of(c.name).encode(): (field_of(c.name), _reader(c)) for c in schema.columns}
        self._ids = _Ids(schema)

    def arguments(self, changes: Sequence[Change]) -> Sequence[bytes | str]:
        return [change.position.text if change.op is _DELETE else self._packed(change) for change in changes]

    def removals(self, version: str, count: int) -> Sequence[bytes | str]:
        return [version + "<"] * count

    def _packed(self, change: Change) -> bytes:
        fields, unset = self.fields(change)
        try:
            packed = _pack((fields[1], "p" if change.absent else "f", unset or None, *fields))
        except UnicodeEncodeError as error:
            raise BadValue("The row holds text that is no Unicode.") from error
        return packed[1 if len(fields) + 3 < _LONG else 3 :]  # what follows the list's head

    def fields(self, change: Change) -> tuple[list[str], list[str]]:
        """Return field and text in turn, the version's and the origin's first; and the fields that are NULL.

        Raises:
            BadValue: When a value is none of its column's type.
        """
        source = "{" + origin_members(change.origin).decode() + "}"
        fields = [META_FIELD, change.position.text, SOURCE_FIELD, source]
        unset: list[str] = []
        columns = self._write
        name = ""
        try:
            for name, value in change.row.items():
                field, convert = columns[name]
                if value is None:
                    unset.append(field)
                    continue
                if convert is not None:
                    value = convert(value)
                fields.append(field)
                # Lua would read a number as a double.
                fields.append(value if type(value) is str else _text(value))
        except CONVERSION_ERRORS as error:
            raise BadValue(f"Column “{name}” holds no value of its type.") from error
        return fields, unset

    def fetch(self, redis: Any, keys: Sequence[bytes | str]) -> list[tuple[int, dict[str, Any]] | None]:
        pipeline = redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(key)
        return [self._row(value) for value in pipeline.execute(raise_on_error=False)] if keys else []

    def versions(self, redis: Any, keys: Sequence[bytes | str]) -> list[int | None]:
        pipeline = redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hget(key, META_FIELD)
        answers = map(_told, pipeline.execute(raise_on_error=False) if keys else [])
        return [_version(text) if text is not None else None for text in answers]

    def ours(self, redis: Any, keys: Sequence[bytes]) -> list[bytes]:
        return list(redis.eval(_OUR_HASHES, len(keys), *keys, META_FIELD)) if keys else []

    def named(self, redis: Any, keys: Sequence[bytes], head: int) -> list[bytes]:
        if not self._ids.told:
            return self.ours(redis, keys)
        pipeline = redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hmget(key, [META_FIELD, *self._ids.fields])
        answers = map(_told, pipeline.execute(raise_on_error=False) if keys else [])
        return [
            key
            for key, texts in zip(keys, answers, strict=True)
            if texts and texts[0] is not None and self._ids.of(map(_text_of, texts[1:])) == key[head:]
        ]

    def _row(self, value: Any) -> tuple[int, dict[str, Any]] | None:
        value = _told(value)
        if not isinstance(value, dict) or META_FIELD.encode() not in value:
            return None
        return readable(lambda: (int(value[META_FIELD.encode()]), self._decoded(value)))

    def _decoded(self, value: Mapping[bytes, bytes]) -> dict[str, Any]:
        known = {field: self._read[field] for field in value if field in self._read}
        return self._document.decode({name: read(value[field]) for field, (name, read) in known.items()})


def _version(text: bytes) -> int | None:
    return readable(lambda: int(text))


def _text_of(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _told(value: Any) -> Any:
    """Return what Redis answered; None where the key holds something of another type.

    Raises:
        RedisError: A server that loads or forbids does not say that there is no row.
    """
    if isinstance(value, RedisError):
        if str(value).startswith("WRONGTYPE"):
            return None
        raise value
    return value


class _Columns(dict[str, tuple[str, Callable[[Any], Any] | None]]):
    """Column, known or not → its field, and what spells its values before :func:`_text` does."""

    def __init__(self, schema: TableSchema) -> None:
        super().__init__((c.name, (field_of(c.name), _writer(c))) for c in schema.columns)

    def __missing__(self, name: str) -> tuple[str, None]:
        return field_of(name), None


def _writer(column: Column) -> Callable[[Any], Any] | None:
    convert = converter(column)
    if column.dimensions:
        return lambda value: dumps(value if convert is None else convert(value)).decode()
    return _json_text if column.type is LogicalType.JSON else convert


def _json_text(text: str) -> str:
    checked_json(text)
    return text


def _text(value: Any) -> str:
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else dumps(value).decode()


def _reader(column: Column) -> Callable[[bytes], Any]:
    """Return what turns a field's bytes into what a parsed document would hold."""
    if column.dimensions:
        return exact
    if column.type is LogicalType.JSON:
        return lambda data: {"%json": exact(data)}
    if column.type is LogicalType.BOOLEAN:
        return lambda data: data == b"true"
    return bytes.decode
