"""Whether rows are missing that nobody of ours removed: the keys of each table are counted, and compared.

The script that writes rows counts those that it makes and those that it removes, in the same step. What was
counted once plus what was made since, less what was removed, has to be there. Counting takes a walk over all
keys, so it is done when there is reason to: at first, when the server has fewer keys than it should have by
these counts, and now and then, as who removes a key may add another one in the same moment, or rename it.
Then each row is held against its key, too. A walk goes on in small parts, between which rows may be written.
A row that was told to expire has not gone yet: the walk takes that back.
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
"""So many times as long as a walk took is rested after it, before the next one that is as thorough."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """What was made and removed of each table since its keys were counted; what was there then.

    Args:
        server: The run of the server that told it.
        fields: As they are kept.
        lasting: Keys of the database that do not expire.
        expiring: Keys that do.
    """

    server: str
    fields: Mapping[bytes, int]
    lasting: int
    expiring: int

    def of(self, head: str, which: str) -> int:
        return self.fields.get(f"{head}{which}".encode(), 0)

    def base(self, head: str) -> int | None:
        return self.fields.get(f"{head}{BASE}".encode())

    def net(self, head: str) -> int:
        return self.of(head, MADE) - self.of(head, REMOVED)

    def precedes(self, now: _Counts) -> bool:
        """Return whether nothing went back meanwhile: neither the server nor what it holds."""
        signs = (MADE.encode(), REMOVED.encode())
        counts = {name: value for name, value in self.fields.items() if name[-1:] in signs}
        return self.server == now.server and all(now.fields.get(n, 0) >= v for n, v in counts.items())

    @property
    def others(self) -> int:
        """The keys that last, less all that were made here; where it falls, somebody removed one."""
        made = {MADE.encode(): 1, REMOVED.encode(): -1, BASE.encode(): 0}
        return self.lasting - sum(made[name[-1:]] * value for name, value in self.fields.items())


@dataclass(slots=True)
class _Walk:
    """A walk over the keys of some tables."""

    before: _Counts
    tables: Mapping[bytes, tuple[Keys, Layout]]
    expire: bool
    """Whether some of them may have been told to expire."""
    thorough: bool
    """Whether a row counts only under its own key."""
    cursor: int = 0
    took_s: float = 0.0
    seen: dict[bytes, array[int]] = field(default_factory=dict)

    def go_on(self, redis: Any) -> bool:
        """Walk on for a moment; return whether every key was passed."""
        began, heads = time.monotonic(), sorted(self.tables)
        pattern, cursor = _pattern(heads), self.cursor
        while True:
            cursor, page = redis.scan(cursor, match=pattern, count=_PAGE)
            for head, keys in _by_table(heads, page).items():
                _, layout = self.tables[head]
                stay = _lasting(redis, layout, keys) if self.expire else keys
                # Others' keys are not to be missed later, nor to stand for rows.
                stay = layout.named(redis, stay, len(head)) if self.thorough else layout.ours(redis, stay)
                self.seen.setdefault(head, array("q")).extend(map(hash, stay))
            self.cursor = cursor
            if not cursor or time.monotonic() - began > _PART_S:
                break
        self.took_s += time.monotonic() - began
        return not cursor

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
        self._again = self._thorough_again = float("-inf")
        self._put_off = False
        """Whether a thorough walk has let a quick one go first."""
        self._walk: _Walk | None = None

    def missing(self, tables: Sequence[tuple[Keys, Layout]]) -> list[Keys]:
        """Return the tables of which rows are gone that nobody of ours removed, until they are forgotten.

        Called about once a second, while nothing is written to these tables.
        """
        now = self._look()
        places = {keys.head.encode(): (keys, layout) for keys, layout in tables}
        if not places:
            return []
        if self._walk and not (self._walk.tables.keys() == places.keys() and self._walk.before.precedes(now)):
            self._walk = None
        fell = self._others is not None and now.others < self._others
        thorough = time.monotonic() >= self._thorough_again
        if fell and thorough and not self._put_off:
            self._walk, self._put_off, thorough = None, True, False
        self._due |= fell or thorough
        self._due |= any(now.base(keys.head) is None for keys, _ in tables)
        self._others = now.others
        if self._walk is None and self._due and time.monotonic() >= self._again:
            own = self._redis.exists(*(stones for keys, _ in tables for stones in (keys.young, keys.elder)))
            self._walk = _Walk(now, places, expire=now.expiring > own, thorough=thorough)
        if self._walk is None:
            return []
        walk, self._walk = self._walk, None  # one that fails is not gone on with
        if not walk.go_on(self._redis):
            self._walk = walk
            return []
        gone = self._compared(walk, [keys for keys, _ in tables])
        self._due, over, rest = False, time.monotonic(), _SHARE * walk.took_s
        if walk.thorough:
            self._thorough_again, self._put_off, rest = over + max(_EVERY_S, rest), False, 0.0
        self._again = over + max(_LEAST_REST_S, rest)
        return gone

    def forget(self, keys: Keys) -> None:
        """Take the table's counts away, as its keys are gone."""
        self._redis.hdel(self._counts, *(f"{keys.head}{which}" for which in (MADE, REMOVED, BASE)))

    def recount(self, keys: Keys) -> None:
        """Have the table's keys counted anew, from the beginning."""
        with self._redis.pipeline(transaction=True) as asked:
            asked.hdel(self._counts, f"{keys.head}{BASE}")
            for which in (MADE, REMOVED):  # a walk that is under way sees that something has changed
                asked.hincrby(self._counts, f"{keys.head}{which}", 1)
            asked.execute()

    def forget_all(self) -> None:
        """Take the counts of every table away."""
        self._redis.delete(self._counts)

    def _look(self) -> _Counts:
        with self._redis.pipeline(transaction=False) as asked:
            asked.info("server")
            asked.info("keyspace")
            asked.hgetall(self._counts)
            server, keyspace, fields = asked.execute()
        here = keyspace.get(f"db{self._redis.connection_pool.connection_kwargs.get('db') or 0}", {})
        keys, expiring = int(here.get("keys", 0)), int(here.get("expires", 0))
        counts = {name: int(value) for name, value in fields.items()}
        return _Counts(str(server["run_id"]), counts, keys - expiring, expiring)

    def _compared(self, walk: _Walk, tables: Sequence[Keys]) -> list[Keys]:
        before, now = walk.before, self._look()
        gone: list[Keys] = []
        for keys in tables if before.precedes(now) else ():
            head, found = keys.head, walk.found(keys.head)
            base = before.base(head)
            if base is None:
                # Some that were passed were removed since, and some that were made were not passed: no fewer
                # are there than this.
                least = found - (now.of(head, REMOVED) - before.of(head, REMOVED)) - now.net(head)
                self._redis.hset(self._counts, f"{head}{BASE}", least)
            # Those that were there at the begin and were not removed since have been passed.
            elif base == now.base(head) and found < base + before.of(head, MADE) - now.of(head, REMOVED):
                gone.append(keys)
        return gone


def _by_table(heads: Sequence[bytes], page: Sequence[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for key in page:
        head = heads[max(bisect_right(heads, key) - 1, 0)]
        if key.startswith(head):
            found.setdefault(head, []).append(key)
    return found


_EXPIRING = """
local found = {}
for i = 1, #KEYS do
  if redis.call('PTTL', KEYS[i]) >= 0 then found[#found + 1] = KEYS[i] end
end
return found
"""


def _lasting(redis: Any, layout: Layout, keys: Sequence[bytes]) -> list[bytes]:
    """Return the keys that stay, after those that were to expire have been told not to."""
    expiring = redis.eval(_EXPIRING, len(keys), *keys)
    told = zip(expiring, layout.versions(redis, expiring), strict=True)
    kept = {key for key, version in told if version is not None and redis.persist(key)}
    going = set(expiring) - kept
    return [key for key in keys if key not in going]


def _pattern(heads: Sequence[bytes]) -> str:
    """Return what matches the keys of all these tables, which are sorted."""
    same = 0
    for one, other in zip(heads[0], heads[-1], strict=False):
        if one != other:
            break
        same += 1
    return glob(heads[0][:same].decode(errors="ignore")) + "*"
