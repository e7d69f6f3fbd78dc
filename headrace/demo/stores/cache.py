"""The cache, read with the Redis client."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from headrace.demo.compare import Found
from headrace.demo.spelling import embedded
from headrace.demo.stores.base import Asked, Facts, address, prefix
from headrace.model.key import Key
from headrace.model.schema import TableSchema

__all__ = ["CacheStore"]

_PAGE = 1_000


class CacheStore:
    """Reads by key; facts: ``key_template`` and ``format``: ``json`` (a string) or ``hash`` (fields)."""

    def __init__(self, name: str, url: str, facts: Facts) -> None:
        self.name = name
        self._facts = facts
        self._client = Redis.from_url(url, socket_timeout=30)

    def counts(self, tables: Sequence[str]) -> dict[str, int]:
        table_of = {prefix(self._facts[table]["key_template"]).encode(): table for table in tables}
        ours = re.compile(b"|".join(re.escape(head) for head in table_of))
        heads = (ours.match(key) for key in set(self._client.scan_iter(count=_PAGE)))
        found = Counter(table_of[head.group()] for head in heads if head)
        return {table: found[table] for table in tables}

    def rows(self, schema: TableSchema) -> Iterator[Found]:
        keys = self._keys(schema.table.name)
        while page := list(islice(keys, _PAGE)):
            yield from self._read(schema, page)

    def some(self, schema: TableSchema, keys: Sequence[Key]) -> Iterator[Found]:
        return self._read(schema, [self.address(schema, key).encode() for key in keys])

    def address(self, schema: TableSchema, key: Key) -> str:
        return address(self._facts[schema.table.name]["key_template"], schema, key)

    def present(self, asked: Sequence[Asked]) -> set[Asked]:
        pipeline = self._client.pipeline(transaction=False)
        for schema, key in asked:
            pipeline.exists(self.address(schema, key))
        return {question for question, there in zip(asked, pipeline.execute(), strict=True) if there}

    def close(self) -> None:
        self._client.close()

    def _read(self, schema: TableSchema, keys: Sequence[bytes]) -> Iterator[Found]:
        hashes = self._facts[schema.table.name]["format"] == "hash"
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(key) if hashes else pipeline.get(key)
        for key, value in zip(keys, pipeline.execute(raise_on_error=False), strict=True):
            if value:
                yield Found(key.decode(errors="replace"), _row(schema, value))

    def _keys(self, table: str) -> Iterator[bytes]:
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", prefix(self._facts[table]["key_template"])) + "*"
        seen: set[bytes] = set()
        for key in self._client.scan_iter(match=pattern, count=_PAGE):
            if key not in seen:
                seen.add(key)
                yield key


def _row(schema: TableSchema, value: Any) -> dict[str, Any]:
    """Return what the value says, or a row without columns when it says nothing readable."""
    if isinstance(value, RedisError) and not str(value).startswith("WRONGTYPE"):
        raise value
    try:
        if isinstance(value, dict):
            return {name.decode(): text.decode() for name, text in value.items()}
        return embedded(schema, json.loads(value))
    except (ValueError, TypeError):
        return {}
