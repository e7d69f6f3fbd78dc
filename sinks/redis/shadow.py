"""A table's shadow in Redis: rows under keys of their own, renamed to those that readers use.

Up to :data:`AT_ONCE` rows it is one call of a script, and readers see one or the other. Of a larger table
each such call is one step for them: a row is the old one or the new one, and is never missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from headrace.observe import failpoints
from sinks.redis.client import store_errors
from sinks.redis.names import Keys, glob

__all__ = ["AT_ONCE", "Rename"]

AT_ONCE = 50_000
"""Rows renamed by one call; Redis does nothing else for that long, some 50 ms."""

_PAGE = 1_000

# ARGV: what the shadow's keys and the serving ones begin with, how many ids are renamed, those ids, and ids
# of serving rows that go. KEYS: what is removed when that was all.
_RENAME = """
local from, to, last = ARGV[1], ARGV[2], 3 + tonumber(ARGV[3])
for i = 4, last do
  if redis.call('EXISTS', from .. ARGV[i]) == 1 then redis.call('RENAME', from .. ARGV[i], to .. ARGV[i]) end
end
for i = last + 1, #ARGV do redis.call('UNLINK', to .. ARGV[i]) end
for i = 1, #KEYS do redis.call('DEL', KEYS[i]) end
"""


class _Ours(Protocol):
    def __call__(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the keys that hold rows of this sink."""
        ...


class Rename:
    """The way of one table's rows from a shadow's keys to those that readers use.

    Args:
        redis: The client.
        mine: The shadow's keys.
        theirs: The serving keys.
        ours: Tells which keys hold rows of this sink.
        life_ms: A tombstone's life.
    """

    def __init__(self, redis: Any, mine: Keys, theirs: Keys, ours: _Ours, life_ms: int) -> None:
        self._redis = redis
        self._mine = mine
        self._theirs = theirs
        self._ours = ours
        self._life = life_ms

    def filled(self) -> bool:
        """Return whether the shadow was prepared and has not become the serving target yet."""
        with store_errors():
            return bool(self._redis.exists(self._mine.prepared))

    def add_tombstones(self) -> None:
        """Remember with the serving rows what was deleted from the shadow."""
        mine, theirs = self._mine, self._theirs
        with store_errors():
            for stones in (mine.elder, mine.young):
                told = self._redis.hscan_iter(stones, count=_PAGE)
                while page := dict(islice(told, _PAGE)):
                    known = zip(
                        page,
                        self._redis.hmget(theirs.young, list(page)),
                        self._redis.hmget(theirs.elder, list(page)),
                        strict=True,
                    )
                    later = {
                        key: page[key] for key, young, elder in known if page[key] > (young or elder or b"")
                    }
                    if later:
                        self._redis.hset(theirs.young, mapping=later)
            # Those that are there may have but minutes left.
            self._redis.pexpire(theirs.young, 3 * self._life)

    def move(self) -> None:
        """Rename the shadow's rows and remove serving rows that it does not have; may be stopped anywhere."""
        mine = self._mine
        with store_errors():
            if self._redis.get(mine.prepared) == b"":
                fresh, left = self._compared()
                if len(fresh) + len(left) <= AT_ONCE:
                    self._call(fresh, left, mine.prepared)
                    return
                self._redis.delete(mine.leaving)
                for page in _pages(left, _PAGE):
                    self._redis.rpush(mine.leaving, *page)
                self._redis.set(mine.prepared, b"moving")
            for page in _pages(self._free(self._ids(mine.head)), AT_ONCE):
                failpoints.hit("switch.page", "redis")
                self._call(page, ())
            while page := self._redis.lrange(mine.leaving, 0, AT_ONCE - 1):
                failpoints.hit("switch.page", "redis")
                self._call((), page)
                self._redis.ltrim(mine.leaving, AT_ONCE, -1)
            self._redis.delete(mine.leaving, mine.prepared)

    def _call(self, fresh: Sequence[bytes], left: Sequence[bytes], *done: str) -> None:
        heads = (self._mine.head, self._theirs.head)
        self._redis.eval(_RENAME, len(done), *done, *heads, len(fresh), *fresh, *left)

    def _ids(self, head: str) -> set[bytes]:
        cut = len(head.encode())
        return {key[cut:] for key in self._redis.scan_iter(match=glob(head) + "*", count=_PAGE)}

    def _compared(self) -> tuple[list[bytes], list[bytes]]:
        """Return the ids to rename, and those of serving rows that the shadow does not have."""
        fresh, there = self._ids(self._mine.head), self._ids(self._theirs.head)
        head = self._theirs.head.encode()
        cut = len(head)
        ours = {
            key[cut:]
            for page in _pages(there, _PAGE)
            for key in self._ours([head + key_id for key_id in page])
        }
        return list(fresh - (there - ours)), list(ours - fresh)

    def _free(self, fresh: set[bytes]) -> list[bytes]:
        """Return the ids whose serving keys do not hold what is somebody else's."""
        head = self._theirs.head.encode()
        free: list[bytes] = []
        for page in _pages(fresh, _PAGE):
            keys = [head + key_id for key_id in page]
            there = [bool(found) for found in self._each("exists", keys)]
            ours = set(self._ours(keys))
            free += [
                key_id
                for key_id, key, found in zip(page, keys, there, strict=True)
                if not found or key in ours
            ]
        return free

    def _each(self, command: str, keys: Sequence[bytes]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            getattr(pipeline, command)(key)
        answers: list[Any] = pipeline.execute()
        return answers


def _pages(ids: Sequence[bytes] | set[bytes], size: int) -> Iterator[list[bytes]]:
    rest = iter(ids)
    while page := list(islice(rest, size)):
        yield page
