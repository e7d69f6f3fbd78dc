"""A real Redis server, with a prefix of one's own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis

from headrace.model.finding import Severity
from sinks.redis import RedisSink
from tests.support.stack import RunningStack

__all__ = ["Server", "redis_server"]


class Server:
    """The real server, spoken to as an operator would."""

    def __init__(self, url: str, operators: str) -> None:
        self.url = url
        self.prefix = f"s{uuid.uuid4().hex[:10]}:"
        self.redis: Any = Redis.from_url(operators, decode_responses=True)

    def sink(self, url: str | None = None, **settings: Any) -> RedisSink:
        return RedisSink("cache", RedisSink.Config(url=url or self.url, key_prefix=self.prefix, **settings))

    def do(self, *words: str | int) -> Any:
        return self.redis.execute_command(*words)

    def codes(self, sink: RedisSink) -> dict[str, Severity]:
        return {finding.code: finding.severity for finding in sink.check()}


@contextmanager
def redis_server(stack: RunningStack) -> Iterator[Server]:
    """Yield the stack's server; what was written under the prefix is removed in the end."""
    server = Server(stack.endpoints.redis_url, stack.redis_admin_url)
    yield server
    for key in server.redis.scan_iter(match=server.prefix + "*", count=1000):
        server.redis.unlink(key)
    server.redis.close()
