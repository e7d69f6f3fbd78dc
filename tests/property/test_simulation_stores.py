"""The same machine over the three real sinks on real stores.

Each program has the store as if empty: everything of the programs before it is removed as of the beginning
of its own epoch, which is what a topic that was made anew comes to.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import count
from pathlib import Path

import pytest
from redis import Redis

from headrace.model.position import MAX_OFFSET, Position
from sinks.base import Sink
from sinks.delta import DeltaSink
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client
from sinks.redis import RedisSink
from sinks.redis.names import glob
from tests.property.simulation.kafka import TOPIC
from tests.property.simulation.machine import Chain
from tests.property.simulation.programs import DEEP, fresh_seed, run, run_fresh
from tests.property.simulation.source import SCHEMA
from tests.support.search import clear
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(0)]


class OneStore:
    """Two sinks upon one store, emptied before each program.

    Args:
        build: Returns a sink upon the store.
    """

    def __init__(self, build: Callable[[], Sink]) -> None:
        self._both = build(), build()
        for sink in self._both:
            sink.prepare(SCHEMA)

    def sinks(self, epoch: int) -> tuple[Sink, Sink]:
        one, other = self._both
        one.truncate(SCHEMA, Position(epoch - 1, MAX_OFFSET))
        one.forget([TOPIC])
        return one, other

    def close(self) -> None:
        for sink in self._both:
            sink.close()


@contextmanager
def elasticsearch(stack: RunningStack) -> Iterator[Callable[[], Sink]]:
    config = ElasticsearchSink.Config(
        url=stack.endpoints.elasticsearch_url, prefix=f"s{uuid.uuid4().hex[:10]}-"
    )
    yield lambda: ElasticsearchSink("search", config)
    with closing(Client(config)) as client:
        clear(client, config.prefix)


@contextmanager
def redis(stack: RunningStack, style: str) -> Iterator[Callable[[], Sink]]:
    prefix = f"s{uuid.uuid4().hex[:10]}:"
    config = RedisSink.Config(url=stack.endpoints.redis_url, key_prefix=prefix, format=style)
    yield lambda: RedisSink("cache", config)
    with Redis.from_url(stack.endpoints.redis_url) as client:
        for key in client.scan_iter(match=glob(prefix) + "*", count=1000):
            client.unlink(key)


@contextmanager
def delta(folder: Path, *, vectors: bool) -> Iterator[Callable[[], Sink]]:
    config = DeltaSink.Config(path=folder / "lake", deletion_vectors=vectors)
    yield lambda: DeltaSink("lake", config)


KINDS = {"elasticsearch": 1, "redis-json": 25, "redis-hash": 25, "delta": 8, "delta-vectors": 8}
"""How many programs each store is given; as many as it runs in a few seconds."""

MORE = 8
"""How many times as many in a round of ``make test-deep``."""


@pytest.fixture
def store(kind: str, stack: RunningStack, tmp_path: Path) -> Iterator[OneStore]:
    kinds: dict[str, Callable[[], AbstractContextManager[Callable[[], Sink]]]] = {
        "elasticsearch": lambda: elasticsearch(stack),
        "redis-json": lambda: redis(stack, "json"),
        "redis-hash": lambda: redis(stack, "hash"),
        "delta": lambda: delta(tmp_path, vectors=False),
        "delta-vectors": lambda: delta(tmp_path, vectors=True),
    }
    with kinds[kind]() as build, closing(OneStore(build)) as store:
        yield store


def chain(store: OneStore) -> type[Chain]:
    class ChainOverStore(Chain):
        place = store
        epochs = count(1)

    return ChainOverStore


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_the_simulated_chain_over_a_real_store(kind: str, store: OneStore) -> None:
    """Many programs, each of many batches: what a store does at a seam shows only in some of them."""
    run(chain(store), KINDS[kind], 30, same=True)


@pytest.mark.deep
@pytest.mark.fresh
@pytest.mark.parametrize("kind", KINDS)
def test_other_programs_each_time_over_a_real_store(
    kind: str, store: OneStore, capsys: pytest.CaptureFixture[str]
) -> None:
    run_fresh(chain(store), (MORE if DEEP else 2) * KINDS[kind], 50, fresh_seed(capsys))
