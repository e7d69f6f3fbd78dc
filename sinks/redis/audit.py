"""Whether rows are missing that nobody of ours removed: the keys of each table are counted, and compared.

The script that writes rows counts those that it makes and those that it removes, in the same step. What was
counted once plus what was made since, less what was removed, has to be there. Counting takes a walk over all
keys, so it is done when there is reason to: at first, when the server has fewer keys than it should have by
these counts, and now and then, as who removes a key may add another one in the same moment. A walk goes on in
small parts, between which rows may be written. A row that was told to expire has not gone yet: the walk takes
that back.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sinks.redis.layout import Layout
from sinks.redis.names import Keys, counts_key, glob

__all__ = ["BASE", "Audit"]

MADE = "+"
REMOVED = "-"
BASE = "="
"""What follows a table's head in the names of its counts."""

_PART_S = 0.05
_PAGE = 1_000
_LEAST_REST_S = 1.0
_EVERY_S = 600.0
_SHARE = 20
"""So many times as long as a walk took is rested after it."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """What was made and removed of each table since its keys were counted; what was there then."""

    fields: Mapping[bytes, int]

    def of(self, head: str, which: str) -> int:
        return self.fields.get(f"{head}{which}".encode(), 0)

    def base(self, head: str) -> int | None:
        return self.fields.get(f"{head}{BASE}".encode())

    def net(self, head: str) -> int:
        return self.of(head, MADE) - self.of(head, REMOVED)

    @property
    def all_made(self) -> int:
        signs = {MADE.encode(): 1, REMOVED.encode(): -1, BASE.encode(): 0}
        return sum(signs[name[-1:]] * value for name, value in self.fields.items())


@dataclass(slots=True)
class _Walk:
    """A walk over the keys of some tables."""

    before: _Counts
    layouts: Mapping[bytes, Layout]
    expire: bool
    """Whether some of them may have been told to expire."""
    cursor: int = 0
    took_s: float = 0.0
    seen: dict[bytes, array[int]] = field(default_factory=dict)

    def go_on(self, redis: Any) -> bool:
        """Walk on for a moment; return whether every key was passed."""
        began, heads = time.monotonic(), sorted(self.layouts)
        pattern = _pattern(heads)
        while True:
            self.cursor, page = redis.scan(self.cursor, match=pattern, count=_PAGE)
            for head, keys in self._by_table(heads, page).items():
                stay = self._lasting(redis, self.layouts[head], keys) if self.expire else keys
                self.seen.setdefault(head, array("q")).extend(map(hash, stay))
            if not self.cursor or time.monotonic() - began > _PART_S:
                break
        self.took_s += time.monotonic() - began
        return not self.cursor

    @staticmethod
    def _by_table(heads: Sequence[bytes], page: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        found: dict[bytes, list[bytes]] = {}
        for key in page:
            head = heads[max(bisect_right(heads, key) - 1, 0)]
            if key.startswith(head):
                found.setdefault(head, []).append(key)
        return found

    @staticmethod
    def _lasting(redis: Any, layout: Layout, keys: Sequence[bytes]) -> list[bytes]:
        """Return the keys that stay, after those that were to expire have been told not to."""
        expiring = {key for key, left in zip(keys, _each(redis, "pttl", keys), strict=True) if left >= 0}
        theirs = sorted(expiring)
        ours = [key for key, version in zip(theirs, layout.versions(redis, theirs), strict=True) if version]
        kept = {key for key, done in zip(ours, _each(redis, "persist", ours), strict=True) if done}
        return [key for key in keys if key not in expiring or key in kept]

    def found(self, head: str) -> int:
        """Return how many keys of a table were passed; one may have been passed twice."""
        return len(np.unique(np.frombuffer(self.seen.get(head.encode(), array("q")), np.int64)))


class Audit:
    """The counts of one sink's tables.

    Args:
        redis: The client.
        prefix: The sink's prefix.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._counts = counts_key(prefix)
        self._others: int | None = None
        self._due = True
        self._again = float("-inf")
        self._walked = float("-inf")
        self._walk: _Walk | None = None

    def missing(self, tables: Sequence[tuple[Keys, Layout]]) -> list[Keys]:
        """Return the tables of which rows are gone that nobody of ours removed; each is told once.

        Called about once a second, while nothing is written to these tables.
        """
        counts, lasting, expiring = self._look()
        layouts = {keys.head.encode(): layout for keys, layout in tables}
        if self._walk is not None and self._walk.layouts.keys() != layouts.keys():
            self._walk, self._due = None, True
        others = lasting - counts.all_made
        self._due |= self._others is None or others < self._others
        self._due |= time.monotonic() - self._walked > _EVERY_S
        self._due |= any(counts.base(keys.head) is None for keys, _ in tables)
        self._others = others
        if self._walk is None and self._due and time.monotonic() >= self._again and layouts:
            own = self._redis.exists(*(stones for keys, _ in tables for stones in (keys.young, keys.elder)))
            self._walk, self._due = _Walk(counts, layouts, expire=expiring > own), False
        if self._walk is None or not self._walk.go_on(self._redis):
            return []
        walk, self._walk = self._walk, None
        self._walked = time.monotonic()
        self._again = self._walked + max(_LEAST_REST_S, _SHARE * walk.took_s)
        return self._compared(walk, [keys for keys, _ in tables])

    def forget(self, keys: Keys) -> None:
        """Take the table's counts away, as its keys are gone."""
        self._redis.hdel(self._counts, *(f"{keys.head}{which}" for which in (MADE, REMOVED, BASE)))

    def forget_all(self) -> None:
        """Take the counts of every table away."""
        self._redis.delete(self._counts)

    def doubt(self, keys: Keys) -> None:
        """Have the table's keys counted anew, from the beginning."""
        with self._redis.pipeline(transaction=True) as asked:
            asked.hdel(self._counts, f"{keys.head}{BASE}")
            for which in (MADE, REMOVED):  # a walk that is under way sees that something has changed
                asked.hincrby(self._counts, f"{keys.head}{which}", 1)
            asked.execute()

    def _look(self) -> tuple[_Counts, int, int]:
        """Return the counts, and how many keys the database has that last, and that are to expire."""
        with self._redis.pipeline(transaction=True) as asked:
            asked.info("keyspace")
            asked.hgetall(self._counts)
            keyspace, fields = asked.execute()
        here = keyspace.get(f"db{self._redis.connection_pool.connection_kwargs.get('db') or 0}", {})
        counts = _Counts({name: int(value) for name, value in fields.items()})
        keys, expiring = int(here.get("keys", 0)), int(here.get("expires", 0))
        return counts, keys - expiring, expiring

    def _compared(self, walk: _Walk, tables: Sequence[Keys]) -> list[Keys]:
        now, _, _ = self._look()
        gone: list[Keys] = []
        for keys in tables:
            head, found = keys.head, walk.found(keys.head)
            base = walk.before.base(head)
            quiet = all(now.of(head, which) == walk.before.of(head, which) for which in (MADE, REMOVED))
            if base is not None and now.base(head) == base:
                # Those that were there at the begin and were not removed since have been passed.
                least = base + walk.before.of(head, MADE) - now.of(head, REMOVED)
                if found < least:
                    gone.append(keys)
                    self.doubt(keys)
                    continue
            if quiet:
                self._redis.hset(self._counts, f"{head}{BASE}", found - now.net(head))
        return gone


def _pattern(heads: Sequence[bytes]) -> str:
    """Return what matches the keys of all these tables, which are sorted."""
    same = 0
    for one, other in zip(heads[0], heads[-1], strict=False):
        if one != other:
            break
        same += 1
    return glob(heads[0][:same].decode(errors="ignore")) + "*"


def _each(redis: Any, command: str, keys: Sequence[bytes]) -> list[int]:
    with redis.pipeline(transaction=False) as asked:
        for key in keys:
            getattr(asked, command)(key)
        answers: list[int] = asked.execute()
    return answers
