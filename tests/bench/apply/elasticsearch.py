"""Elasticsearch: the sink against ready-made bulk bodies, with external versions and without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import orjson
from elasticsearch import ApiError, Elasticsearch
from elasticsearch.helpers import scan

from headrace.model.change import Change, Op
from headrace.model.errors import SinkUnavailable
from headrace.model.outcome import APPLIED
from sinks.document import Document
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.bulk import delete_line, upsert_line
from sinks.elasticsearch.mapping import table_mapping
from sinks.elasticsearch.names import META_FIELD, field_of
from tests.bench.apply.cpu import Sampler
from tests.bench.apply.products import SCHEMA, Batches
from tests.bench.apply.rounds import Busy, Side

__all__ = ["KINDS", "bulk_bodies", "elasticsearch_sides", "patiently"]

_REQUEST = 2_000
"""Operations in one request, the sink's own default."""

_ANSWER = "errors,items.*.status,items.*.error"

KINDS = {
    ("model/key.py", "*"): "keys",
    ("model/position.py", "*"): "versions",
    ("sinks/document.py", "*"): "row to document",
    ("elasticsearch/bulk.py", "upsert_line"): "document to bytes",
    ("elasticsearch/bulk.py", "delete_line"): "document to bytes",
    ("elasticsearch/bulk.py", "tombstone_line"): "document to bytes",
    ("elasticsearch/bulk.py", "*"): "hand-over",
    ("elasticsearch/client.py", "*"): "hand-over",
    ("elasticsearch/overwriting.py", "*"): "decisions",
    ("elasticsearch/sink.py", "_older_than_a_delete"): "decisions",
    ("elasticsearch/sink.py", "_merged"): "decisions",
    ("elasticsearch/sink.py", "*"): "loop",
}


_TRIES = 30
_Result = TypeVar("_Result")


def _at_once(call: Callable[[], _Result]) -> _Result:
    """Call.

    Raises:
        Busy: The cluster asks for patience.
    """
    try:
        return call()
    except (SinkUnavailable, ApiError) as error:
        if isinstance(error, ApiError) and error.status_code != 429:
            raise
        raise Busy from error


def patiently(call: Callable[[], _Result]) -> _Result:
    """Call again and again until the cluster is no longer busy."""
    for _ in range(_TRIES):
        try:
            return _at_once(call)
        except Busy:
            time.sleep(1)
    return call()


class _Index:
    def __init__(self, client: Elasticsearch, index: str) -> None:
        self.client = client
        self.index = index

    def content(self) -> dict[str, Any]:
        return patiently(self._read)

    def _read(self) -> dict[str, Any]:
        self.client.indices.refresh(index=self.index)
        return {hit["_id"]: hit["_source"] for hit in scan(self.client, index=self.index, size=1_000)}


class _Ours(_Index):
    name = "ours"

    def __init__(self, client: Elasticsearch, url: str, work: Batches) -> None:
        super().__init__(client, "ours-public-products")
        self.sampler: Sampler | None = Sampler(KINDS)
        self._work = work
        self._sink = ElasticsearchSink("bench", ElasticsearchSink.Config(url=url, prefix="ours-"))

    def open(self) -> None:
        patiently(lambda: self._sink.prepare(SCHEMA))

    def write(self, phase: str, number: int) -> None:
        outcomes = _at_once(lambda: self._sink.apply(SCHEMA, self._work[phase][number]))
        assert all(outcome is APPLIED for outcome in outcomes)

    def close(self) -> None:
        patiently(lambda: self._sink.drop(SCHEMA))
        self._sink.close()


class _Raw(_Index):
    sampler: Sampler | None = None

    def __init__(self, client: Elasticsearch, work: Batches, *, guarded: bool) -> None:
        self.name = "guarded" if guarded else "plain"
        super().__init__(client, f"raw-{self.name}")
        document = Document(SCHEMA, field_of, objects_only=True, reserved=(META_FIELD,))
        self._bodies: dict[str, list[list[Any]]] = {
            phase: [list(bulk_bodies(document, batch, guarded=guarded)) for batch in batches]
            for phase, batches in work.items()
        }

    def open(self) -> None:
        self.close()
        settings = {
            "number_of_shards": 1,
            "number_of_replicas": 0,
            "gc_deletes": "5m",
        }
        indices = self.client.indices
        patiently(lambda: indices.create(index=self.index, mappings=table_mapping(SCHEMA), settings=settings))

    def write(self, phase: str, number: int) -> None:
        for body in self._bodies[phase][number]:
            answer = _at_once(partial(self._send, body))
            assert not answer["errors"]

    def _send(self, body: Any) -> Any:
        # The client takes bytes, and sends them as they are.
        return self.client.bulk(index=self.index, operations=[body], filter_path=_ANSWER)

    def close(self) -> None:
        patiently(lambda: self.client.indices.delete(index=self.index, ignore_unavailable=True))


def bulk_bodies(
    document: Document, batch: Iterable[Change], *, guarded: bool, size: int = _REQUEST
) -> Iterator[bytes]:
    """Yield ready-made bodies of bulk requests, with external versions if ``guarded``."""
    lines = (_line(document, change, guarded=guarded) for change in batch)
    while chunk := b"".join(islice(lines, size)):
        yield chunk


def _line(document: Document, change: Change, *, guarded: bool) -> bytes:
    key_id = change.key.id
    if change.op is Op.DELETE:
        line = delete_line(change.position.version, key_id)
    else:
        line = upsert_line(document, change, change.row, key_id)
    if guarded:
        return line
    action, rest = line.split(b"\n", 1)
    ((op, about),) = orjson.loads(action).items()
    return orjson.dumps({op: {"_id": about["_id"]}}) + b"\n" + rest


@contextmanager
def elasticsearch_sides(url: str, work: Batches) -> Iterator[list[Side]]:
    """Yield the three ways of writing to a cluster."""
    with closing(Elasticsearch(url, request_timeout=60)) as client:
        sides: list[Side] = [
            _Ours(client, url, work),
            _Raw(client, work, guarded=True),
            _Raw(client, work, guarded=False),
        ]
        yield sides
