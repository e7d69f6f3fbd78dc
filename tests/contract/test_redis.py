"""The Redis sink keeps the contract on a real server, in both formats."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import ClassVar

import pytest
from redis import Redis

from headrace.model.schema import LogicalType
from sinks.contract import SinkContract, table
from sinks.redis import RedisSink
from sinks.redis.names import glob
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack


@pytest.fixture
def prefix(stack: RunningStack) -> Iterator[str]:
    prefix = f"t[{uuid.uuid4().hex[:10]}]:"  # brackets are a pattern to SCAN, unless it is told otherwise
    yield prefix
    with Redis.from_url(stack.endpoints.redis_url) as redis:
        for key in redis.scan_iter(match=glob(prefix) + "*", count=1000):
            redis.unlink(key)


class _Redis(SinkContract):
    style: ClassVar[str]
    typed: ClassVar[bool] = False
    bad_table: ClassVar = table("payloads", {"id": LogicalType.INT64, "payload": LogicalType.BYTES}, ["id"])
    bad_row: ClassVar = {"payload": 7}

    @pytest.fixture
    def sink(self, stack: RunningStack, prefix: str) -> Iterator[RedisSink]:
        config = RedisSink.Config(url=stack.endpoints.redis_url, key_prefix=prefix, format=self.style)
        sink = RedisSink("cache", config)
        yield sink
        sink.close()


class TestRedisJson(_Redis):
    style: ClassVar = "json"


class TestRedisHash(_Redis):
    style: ClassVar = "hash"
