"""The real Elasticsearch, spoken to as an operator would."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from headrace.model.schema import TableSchema
from sinks.contract.story import ORDERS, at, order
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client
from sinks.elasticsearch.names import alias_of
from tests.support.stack import RunningStack

__all__ = ["ROWS", "Server", "clear", "filled", "identity", "search_server"]

ROWS = [order(number, at(number)) for number in range(1, 9)]
"""What :func:`filled` holds."""

_AT_ONCE = 20
"""A request's first line has room for so many names."""


class Server:
    """One server and a prefix of its own for the indexes of a test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"s{uuid.uuid4().hex[:10]}-"
        self.client = Client(ElasticsearchSink.Config(url=url))

    def sink(self, url: str | None = None, **settings: Any) -> ElasticsearchSink:
        config = ElasticsearchSink.Config(url=url or self.url, prefix=self.prefix, **settings)
        return ElasticsearchSink("search", config)

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        return self.client.request(method, target, body).json()

    def alias(self, schema: TableSchema = ORDERS) -> str:
        return alias_of(self.prefix, schema.table)


@contextmanager
def search_server(stack: RunningStack) -> Iterator[Server]:
    """Yield the stack's server; the indexes that were made under the prefix are deleted in the end."""
    server = Server(stack.endpoints.elasticsearch_url)
    yield server
    clear(server.client, server.prefix)
    server.client.close()


def filled(server: Server) -> Iterator[ElasticsearchSink]:
    """Yield a sink of two shards with some rows; it is closed in the end."""
    sink = server.sink(shards=2)
    sink.prepare(ORDERS)
    sink.apply(ORDERS, ROWS)
    yield sink
    sink.close()


def identity(sink: ElasticsearchSink) -> str:
    """Return the identity of the sink's one target."""
    return (sink.identities([ORDERS]) or {})[ORDERS.table]


def clear(client: Client, prefix: str) -> None:
    """Delete every index whose name begins with ``prefix``."""
    found = client.request("GET", f"/{prefix}*/_alias?expand_wildcards=all").json()
    names = iter([index.replace("%", "%25") for index in found])
    while some := list(islice(names, _AT_ONCE)):
        client.request("DELETE", f"/{','.join(some)}?ignore_unavailable=true", see=(404,))
