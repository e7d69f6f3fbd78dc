"""How a row lies in Redis: as one JSON string, or as a hash of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import orjson
from redis.exceptions import RedisError

from headrace.model.change import Change, Op
from headrace.model.schema import Column, LogicalType, TableSchema
from sinks.document import BadValue, Document, exact
from sinks.origin import origin_members
from sinks.redis.client import Script
from sinks.redis.names import META_FIELD, SOURCE_FIELD, field_of
from sinks.redis.scripts import HASH_APPLY, JSON_APPLY

__all__ = ["HashLayout", "JsonLayout", "Layout", "layout_of"]

_HEAD = b'{"_headrace":"'
_JSON = b'{"_headrace":"%019d","_headrace_source":{%b}%b'
_VERSION = slice(len(_HEAD), len(_HEAD) + 19)


class Layout(Protocol):
    """One way of keeping rows."""

    script: Script
    merges: bool
    """Whether the script itself merges partial changes."""

    def arguments(self, change: Change, row: Mapping[str, Any]) -> Sequence[Any]:
        """Return the script's arguments for one change that is to leave ``row``.

        Raises:
            BadValue: When a value is none of its column's type.
        """
        ...

    def removal(self, version: str, *, older_only: bool = False) -> Sequence[Any]:
        """Return the script's arguments for one delete; ``older_only`` spares a row of that very version."""
        ...

    def fetch(self, redis: Any, keys: Sequence[bytes]) -> list[tuple[int, dict[str, Any]] | None]:
        """Return version and row of each key; None where there is none of ours."""
        ...


class JsonLayout:
    """A string per row: ``{"_headrace":"<version>","_headrace_source":{…},<columns>}``."""

    script = Script.of(JSON_APPLY)
    merges = False

    def __init__(self, schema: TableSchema) -> None:
        self._document = Document(schema, field_of, reserved=(META_FIELD, SOURCE_FIELD))

    def arguments(self, change: Change, row: Mapping[str, Any]) -> Sequence[Any]:
        if change.op is Op.DELETE:
            return self.removal(change.position.text)
        version, origin = change.position.version, origin_members(change.origin)
        return (_JSON % (version, origin, self._document.rest(row)),)

    def removal(self, version: str, *, older_only: bool = False) -> Sequence[Any]:
        return (version + "<" if older_only else version,)

    def fetch(self, redis: Any, keys: Sequence[bytes]) -> list[tuple[int, dict[str, Any]] | None]:
        return [self._row(value) for value in redis.mget(keys)] if keys else []

    def _row(self, value: bytes | None) -> tuple[int, dict[str, Any]] | None:
        if value is None or not value.startswith(_HEAD):
            return None
        return int(value[_VERSION]), self._document.decode(self._document.parse(value))


class HashLayout:
    """A hash per row: a field per column that is not NULL, and the version beside them.

    Scalars are text, spelled as in a document but without quotes (json: the document); arrays are JSON.
    """

    script = Script.of(HASH_APPLY)
    merges = True

    def __init__(self, schema: TableSchema) -> None:
        self._document = Document(schema, field_of)
        self._json = frozenset(
            field_of(c.name) for c in schema.columns if c.type is LogicalType.JSON and not c.dimensions
        )
        self._read = {field_of(c.name).encode(): (field_of(c.name), _reader(c)) for c in schema.columns}

    def arguments(self, change: Change, row: Mapping[str, Any]) -> Sequence[Any]:
        if change.op is Op.DELETE:
            return self.removal(change.position.text)
        version = change.position.text
        fields: list[Any] = [META_FIELD, version, SOURCE_FIELD, b"{%b}" % origin_members(change.origin)]
        unset: list[str] = []
        texts = {field_of(name): value for name, value in row.items()} if self._json else {}
        for name, value in self._document.encode(row).items():
            if value is None:
                unset.append(name)
            else:
                fields += (name, texts[name] if name in self._json else _text(value))
        if change.partial:
            return (version, "p", str(len(fields)), str(len(unset)), *fields, *unset)
        return (version, "f", str(len(fields)), "0", *fields)

    def removal(self, version: str, *, older_only: bool = False) -> Sequence[Any]:
        return (version, "t" if older_only else "d", "0", "0")

    def fetch(self, redis: Any, keys: Sequence[bytes]) -> list[tuple[int, dict[str, Any]] | None]:
        pipeline = redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(key)
        return [self._row(value) for value in pipeline.execute(raise_on_error=False)] if keys else []

    def _row(self, value: Any) -> tuple[int, dict[str, Any]] | None:
        if isinstance(value, RedisError) and not str(value).startswith("WRONGTYPE"):
            raise value  # a server that loads or forbids does not say that there is no row
        if not isinstance(value, dict) or META_FIELD.encode() not in value:
            return None
        known = {field: self._read[field] for field in value if field in self._read}
        texts = {name: read(value[field]) for field, (name, read) in known.items()}
        return int(value[META_FIELD.encode()]), self._document.decode(texts)


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, datetime):
        return value.isoformat()
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise BadValue(f"The row is no JSON: {error}") from error


def _reader(column: Column) -> Callable[[bytes], Any]:
    """Return what turns a field's bytes into what a parsed document would hold."""
    if column.dimensions:
        return exact
    if column.type is LogicalType.JSON:
        return lambda data: {"%json": exact(data)}
    if column.type is LogicalType.BOOLEAN:
        return lambda data: data == b"true"
    return bytes.decode


def layout_of(name: str, schema: TableSchema) -> Layout:
    """Return the layout called ``json`` or ``hash``."""
    return HashLayout(schema) if name == "hash" else JsonLayout(schema)
