"""A request is cut, or its answer is lost, on the way to a real store: the batch again ends the same."""

from __future__ import annotations

import uuid
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

import pytest

from headrace.model.errors import SinkUnavailable
from headrace.model.outcome import APPLIED
from sinks.base import Sink
from sinks.contract.story import ORDERS, at, delete, expected, order, state
from sinks.elasticsearch import ElasticsearchSink
from sinks.redis import RedisSink
from tests.support.search import Server
from tests.support.stack import RunningStack
from tests.support.wire import Wire, wire

pytestmark = pytest.mark.stack

MANY = 900
BREAKS = [
    pytest.param(
        upto,
        times,
        id=f"{'answer' if upto is None else upto}-{times}",
        marks=[] if (upto, times) in ((None, 3), (20_000, 1)) else pytest.mark.deep,
    )
    for upto in (None, 40, 20_000)
    for times in (1, 3)
]
"""How much of a request arrives (None: all of it, and the answer is lost), and how often."""


def through(url: str, port: int) -> str:
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}"))


def ends_the_same(sink: Sink, way: Wire, mark: bytes, upto: int | None, times: int) -> None:
    sink.prepare(ORDERS)
    first = [order(n, at(n)) for n in range(MANY)]
    assert sink.apply(ORDERS, first) == [APPLIED] * MANY
    second = [
        delete(ORDERS, n, at(MANY + n)) if n % 3 == 0 else order(n, at(MANY + n), item="later", note="x" * 60)
        for n in range(MANY)
    ]
    way.break_at(mark, upto, times)
    with suppress(SinkUnavailable):  # the engine gives the batch again; so do we
        sink.apply(ORDERS, second)
    assert way.broken
    way.break_at(mark, upto, 0)
    assert sink.apply(ORDERS, second) == [APPLIED] * MANY
    assert state(sink, ORDERS) == expected(ORDERS, [change for change in second if change.row])


@pytest.mark.parametrize(("upto", "times"), BREAKS)
@pytest.mark.parametrize("style", ["json", "hash"])
def test_redis(stack: RunningStack, style: str, upto: int | None, times: int) -> None:
    url = stack.endpoints.redis_url
    port = urlsplit(url).port
    assert port is not None
    prefix = f"wire{uuid.uuid4().hex[:8]}:"
    with wire("127.0.0.1", port) as way:
        settings = RedisSink.Config.model_validate(
            {"url": through(url, way.port), "key_prefix": prefix, "format": style}
        )
        sink = RedisSink("cache", settings)
        try:
            ends_the_same(sink, way, b"EVALSHA", upto, times)
        finally:
            sink.drop(ORDERS)
            sink.close()


@pytest.mark.parametrize(("upto", "times"), BREAKS)
def test_elasticsearch(server: Server, upto: int | None, times: int) -> None:
    port = urlsplit(server.url).port
    assert port is not None
    with wire("127.0.0.1", port) as way:
        sink: ElasticsearchSink = server.sink(through(server.url, way.port))
        try:
            ends_the_same(sink, way, b"_bulk", upto, times)
        finally:
            sink.close()
