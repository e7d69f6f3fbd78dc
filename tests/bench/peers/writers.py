"""The stores of the plain consumer, through their own clients and their own helpers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date
from itertools import islice
from typing import Any

import orjson
from elasticsearch import Elasticsearch, OrjsonSerializer
from elasticsearch.helpers import bulk, parallel_bulk
from redis import Redis

from tests.bench.peers.consumer import Row, Table, Task, Writer
from tests.bench.peers.lake import DeltaWriter

__all__ = ["Documents", "ElasticsearchWriter", "RedisWriter", "writer_of"]

_CHUNK = 2_000
_CHUNK_BYTES = 5_000_000
_CONFLICT = 409

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "date": lambda days: date.fromordinal(_EPOCH_DAY + days).isoformat(),
    "json": orjson.Fragment,
}


class Documents:
    """Rows as what a JSON store keeps."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self._convert = {
            table.target: [(name, _CONVERT[kind]) for name, kind in table.types.items() if kind in _CONVERT]
            for table in tables
        }

    def of(self, row: Row) -> dict[str, Any]:
        """Return the row's document."""
        image = row.image
        for name, convert in self._convert[row.table.target]:
            if image[name] is not None:
                image[name] = convert(image[name])
        return image


class ElasticsearchWriter:
    """Bulk requests with external versions, by the client's own helper."""

    def __init__(self, url: str, tables: Iterable[Table], threads: int) -> None:
        self._documents = Documents(tables)
        self._client = Elasticsearch(
            url,
            request_timeout=60,
            serializer=OrjsonSerializer(),
            retry_on_status=(429,),
            max_retries=20,
        )
        self._threads = threads

    def write(self, rows: Iterator[Row]) -> None:
        actions = map(self._action, rows)
        if self._threads < 2:
            _, failed = bulk(
                self._client,
                actions,
                chunk_size=_CHUNK,
                max_chunk_bytes=_CHUNK_BYTES,
                raise_on_error=False,
            )
            _check(failed if isinstance(failed, list) else [])
            return
        answers = parallel_bulk(
            self._client,
            actions,
            thread_count=self._threads,
            chunk_size=_CHUNK,
            max_chunk_bytes=_CHUNK_BYTES,
            raise_on_error=False,
        )
        _check([item for fine, item in answers if not fine])

    def _action(self, row: Row) -> dict[str, object]:
        action: dict[str, object] = {
            "_op_type": "delete" if row.gone else "index",
            "_index": row.table.target,
            "_id": row.key,
            "version": row.version,
            "version_type": "external_gte",
        }
        return action if row.gone else {**action, "_source": self._documents.of(row)}


def _check(failed: list[dict[str, dict[str, object]]]) -> None:
    """Let pass what something newer was there for."""
    for item in failed:
        for answer in item.values():
            if answer["status"] not in (_CONFLICT, 404):
                raise RuntimeError(f"refused: {answer}")


_SCRIPT = """
for i = 1, #KEYS do
  local value = ARGV[i]
  local gone = #value == 19
  local version = gone and value or string.sub(value, 15, 33)
  local old = string.sub(redis.call('GETRANGE', KEYS[i], 0, 32), 15, 33)
  if old <= version then
    if gone then redis.call('DEL', KEYS[i]) else redis.call('SET', KEYS[i], value) end
  end
end
return #KEYS
"""

_GROUP = 256
_CALLS = 8


class RedisWriter:
    """JSON texts that begin with their version, compared by a script that takes many at once."""

    def __init__(self, url: str, tables: Iterable[Table]) -> None:
        self._documents = Documents(tables)
        self._redis = Redis.from_url(url, socket_timeout=60)
        self._sha = self._redis.script_load(_SCRIPT)

    def write(self, rows: Iterator[Row]) -> None:
        while calls := [group for _ in range(_CALLS) if (group := list(islice(rows, _GROUP)))]:
            pipeline = self._redis.pipeline(transaction=False)
            for group in calls:
                keys = [f"{row.table.target}{row.key}" for row in group]
                pipeline.evalsha(self._sha, len(keys), *keys, *map(self._value, group))
            pipeline.execute()

    def _value(self, row: Row) -> bytes:
        if row.gone:
            return b"%019d" % row.version
        return b'{"_headrace":"%019d",%b' % (row.version, orjson.dumps(self._documents.of(row))[1:])


def writer_of(task: Task) -> Writer:
    """Return the task's store."""
    tables = list(task.tables.values())
    if task.store == "delta":
        return DeltaWriter(task.url, tables)
    if task.store == "redis":
        return RedisWriter(task.url, tables)
    return ElasticsearchWriter(task.url, tables, task.threads)
