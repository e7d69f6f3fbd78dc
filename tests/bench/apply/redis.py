"""Redis: the sink against pipelines of ready-made values, with a script that compares versions or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from redis import Redis

from headrace.model.change import Change, Op
from headrace.model.outcome import APPLIED
from sinks.redis import RedisSink
from sinks.redis.layout import HashLayout, JsonLayout
from tests.bench.apply.cpu import Sampler
from tests.bench.apply.products import SCHEMA, Batches
from tests.bench.apply.rounds import Side

__all__ = ["redis_sides"]

_GROUP = 256
_PIPELINE = 1_000
_HEAD = "products:"

# What is left of the sink's own script when nothing needs to be remembered, merged or told apart.
_JSON = """
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

# Per key: version, how many arguments to set, how many fields to remove, and those.
_HASH = """
local at = 1
for i = 1, #KEYS do
  local key, version, set, unset = KEYS[i], ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local first = at + 3
  at = first + set + unset
  local old = redis.call('HGET', key, '_headrace')
  if not old or old <= version then
    if set == 0 then redis.call('DEL', key)
    else
      redis.call('HSET', key, unpack(ARGV, first, first + set - 1))
      if unset > 0 then redis.call('HDEL', key, unpack(ARGV, first + set, at - 1)) end
    end
  end
end
return #KEYS
"""

_KINDS = {
    ("model/key.py", "*"): "keys",
    ("sinks/origin.py", "*"): "origins",
    ("model/position.py", "*"): "versions",
    ("sinks/document.py", "*"): "row to document",
    ("redis/layout.py", "*"): "document to bytes",
    ("redis/client.py", "*"): "hand-over",
    ("redis/sink.py", "_note"): "decisions",
    ("redis/sink.py", "*"): "loop",
}


class _Keys:
    def __init__(self, redis: Redis, prefix: str, style: str) -> None:
        self.redis = redis
        self.head = f"{prefix}{_HEAD}".encode()
        self.style = style

    def content(self) -> dict[str, Any]:
        keys = sorted(set(self.redis.scan_iter(match=self.head + b"*", count=5_000)))
        pipe = self.redis.pipeline(transaction=False)
        for key in keys:
            pipe.get(key) if self.style == "json" else pipe.hgetall(key)
        names = (key[len(self.head) :].decode() for key in keys)
        return dict(zip(names, pipe.execute(), strict=True))

    def close(self) -> None:
        self.redis.flushdb()


class _Ours(_Keys):
    name = "ours"

    def __init__(self, redis: Redis, url: str, style: str, work: Batches) -> None:
        super().__init__(redis, "ours:", style)
        self.sampler: Sampler | None = Sampler(_KINDS)
        self._work = work
        self._sink = RedisSink("bench", RedisSink.Config(url=url, key_prefix="ours:", format=style))

    def open(self) -> None:
        self._sink.prepare(SCHEMA)

    def write(self, phase: str, number: int) -> None:
        outcomes = self._sink.apply(SCHEMA, self._work[phase][number])
        assert all(outcome is APPLIED for outcome in outcomes)


class _Plain(_Keys):
    """``SET``, or ``HSET`` and for columns that became NULL ``HDEL``, and ``DEL``."""

    name = "plain"
    sampler: Sampler | None = None

    def __init__(self, redis: Redis, style: str, work: Batches) -> None:
        super().__init__(redis, "plain:", style)
        self._work = {p: [_prepared(self.head, style, b) for b in batches] for p, batches in work.items()}

    def open(self) -> None:
        self.redis.ping()

    def write(self, phase: str, number: int) -> None:
        commands = self._work[phase][number]
        for start in range(0, len(commands), _PIPELINE):
            pipe = self.redis.pipeline(transaction=False)
            for key, value, unset in commands[start : start + _PIPELINE]:
                if value is None:
                    pipe.delete(key)
                elif self.style == "json":
                    pipe.set(key, value)
                else:
                    pipe.hset(key, items=value)
                    if unset:
                        pipe.hdel(key, *unset)
            pipe.execute()


class _Guarded(_Keys):
    """One script call for a group of rows, all groups of a batch in one pipeline."""

    name = "guarded"
    sampler: Sampler | None = None

    def __init__(self, redis: Redis, style: str, work: Batches) -> None:
        super().__init__(redis, "guarded:", style)
        self._script = _JSON if style == "json" else _HASH
        self._work = {p: [_calls(self.head, style, b) for b in batches] for p, batches in work.items()}

    def open(self) -> None:
        self._sha = self.redis.script_load(self._script)

    def write(self, phase: str, number: int) -> None:
        pipe = self.redis.pipeline(transaction=False)
        for count, arguments in self._work[phase][number]:
            pipe.evalsha(self._sha, count, *arguments)
        pipe.execute()


def _prepared(head: bytes, style: str, batch: Sequence[Change]) -> list[tuple[bytes, Any, Sequence[Any]]]:
    """Return key, what to set and which fields to remove, as the sink would write them."""
    documents, hashes = JsonLayout(SCHEMA), HashLayout(SCHEMA)
    prepared: list[tuple[bytes, Any, Sequence[Any]]] = []
    for change in batch:
        key = head + change.key.id.encode()
        if change.op is Op.DELETE:
            prepared.append((key, None, ()))
        elif style == "json":
            prepared.append((key, documents.value(change), ()))
        else:
            prepared.append((key, *hashes.fields(change)))
    return prepared


def _calls(head: bytes, style: str, batch: Sequence[Change]) -> list[tuple[int, list[Any]]]:
    prepared = list(zip(_prepared(head, style, batch), batch, strict=True))
    calls = []
    for start in range(0, len(prepared), _GROUP):
        group = prepared[start : start + _GROUP]
        arguments: list[Any] = [key for (key, _, _), _ in group]
        for (_, value, unset), change in group:
            version = change.position.text
            if style == "json":
                arguments.append(version if value is None else value)
            else:
                arguments += (version, len(value or ()), len(unset), *(value or ()), *unset)
        calls.append((len(group), arguments))
    return calls


@contextmanager
def redis_sides(url: str, style: str, work: Batches) -> Iterator[list[Side]]:
    """Yield the three ways of writing rows in one format; the database is emptied after each round."""
    with closing(Redis.from_url(url)) as redis:
        yield [_Ours(redis, url, style, work), _Guarded(redis, style, work), _Plain(redis, style, work)]
