"""A real Redis server: the stack's, with a prefix of one's own, or another one with other settings."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from headrace.local.ports import HOST
from headrace.local.redis import _binary
from headrace.model.finding import Severity
from headrace.model.schema import TableId, TableSchema
from sinks.contract.story import ORDERS
from sinks.redis import RedisSink
from sinks.redis.counts import BASE
from tests.support.own_servers import free_port, shown
from tests.support.stack import RunningStack
from tests.support.waiting import ended, until

__all__ = ["Server", "other_redis", "redis_server", "until_told"]


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


@contextmanager
def other_redis(folder: Path, **settings: str) -> Iterator[str]:
    """Yield the URL of a server with files of its own in a folder; ``_`` in settings is a dash."""
    port = free_port()
    given = {"port": str(port), "bind": HOST, "dir": str(folder), "appendonly": "yes", "save": "", **settings}
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(_binary()), *words], stdout=log, stderr=log)
    try:
        with shown(folder / "log"):
            with Redis(HOST, port) as redis:
                until(lambda: _answers(redis))
            yield f"redis://{HOST}:{port}"
    finally:
        process.terminate()
        ended(process)


def _answers(redis: Any) -> bool:
    try:
        return bool(redis.ping())
    except RedisError:
        return False


def until_told(sink: RedisSink, schemas: Sequence[TableSchema] = (ORDERS,)) -> dict[TableId, str]:
    """Look as the engine does until all keys have been counted; return the tables that are there."""
    counts = f"{sink.config.key_prefix}__headrace:counts"
    bases = [f"{sink._table(schema).keys.head}{BASE}" for schema in schemas]
    found: dict[TableId, str] = {}

    def counted() -> bool:
        found.clear()
        found.update(sink.identities(schemas) or {})
        return len(found) < len(schemas) or all(sink._client.redis.hmget(counts, bases))

    until(counted)
    return found
