"""Whether rows are missing that nobody of ours removed: the keys of each table are counted, and compared.

The script that writes rows counts those that it makes and those that it removes, in the same step. What was
counted once plus what was made since, less what was removed, has to be there. Counting takes a walk over all
keys, so it is done when there is reason to: at first, when the number of keys is another one than it should
be by these counts, as who adds keys of theirs may have removed one, and now and then, for one may be renamed.
Then each row is held against its key, too. A row that was told to expire has not gone yet: the walk takes
that back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sinks.redis.counts import BASE, LEAST, MADE, REMOVED, Counts, look
from sinks.redis.layout import Layout
from sinks.redis.names import Keys, counts_key, lasting_keys, notes_key
from sinks.redis.walk import Walk

__all__ = ["Audit"]

_LEAST_REST_S = 1.0
_EVERY_S = 600.0
_SHARE = 20
"""So many times as long as a walk took is rested after it, before the next one that is as thorough."""


class Audit:
    """The counts of one sink's tables.

    Args:
        redis: The client.
        prefix: The sink's prefix.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._counts = counts_key(prefix)
        self._notes = notes_key(prefix)
        self._beside = lasting_keys(prefix)
        self._others: int | None = None
        self._due = True
        self._again = self._thorough_again = float("-inf")
        self._put_off = False
        """Whether a thorough walk has let a quick one go first."""
        self._walk: Walk | None = None

    def missing(self, tables: Sequence[tuple[Keys, Layout]]) -> list[Keys]:
        """Return the tables of which rows are gone that nobody of ours removed, until they are forgotten.

        Called about once a second.
        """
        now = look(self._redis, self._counts, self._beside)
        places = {keys.head.encode(): (keys, layout) for keys, layout in tables}
        if not places:
            return []
        if self._walk and not (self._walk.tables.keys() == places.keys() and self._walk.before.precedes(now)):
            self._walk, self._due = None, True
        moved = self._others is not None and now.others != self._others
        thorough = time.monotonic() >= self._thorough_again
        if moved and thorough and not self._put_off:
            self._walk, self._put_off, thorough = None, True, False
        uncounted = not all(now.is_counted(keys.head) for keys, _ in tables)
        self._due |= moved or thorough or (uncounted and self._walk is None)
        self._others = now.others
        if self._walk is None and self._due and time.monotonic() >= self._again:
            self._begin(now, places, thorough=thorough or uncounted)
        if self._walk is None:
            return []
        walk, self._walk = self._walk, None  # one that fails is not gone on with
        if not walk.go_on():
            self._walk = walk
            return []
        return self._end(walk, [keys for keys, _ in tables])

    def fresh(self, keys: Keys) -> None:
        """Have the table's keys counted from here on, as its target is made."""
        self.forget(keys, at_least=0)

    def forget(self, keys: Keys, *, at_least: int | None = None) -> None:
        """Take the table's counts away: its keys are gone, or only the next walk knows how many there are."""
        with self._redis.pipeline(transaction=True) as asked:
            asked.hdel(self._counts, *(f"{keys.head}{sign}" for sign in (MADE, REMOVED, BASE, LEAST)))
            if at_least is not None:
                asked.hset(self._counts, f"{keys.head}{LEAST}", at_least)
            asked.delete(self._notes)  # of a walk that is under way, which counts nothing then
            asked.execute()

    def forget_all(self) -> None:
        """Take the counts of every table away."""
        self._redis.delete(self._counts, self._notes)

    def _begin(self, now: Counts, places: dict[bytes, tuple[Keys, Layout]], *, thorough: bool) -> None:
        own = (stones for keys, _ in places.values() for stones in (keys.young, keys.elder))
        expire = now.expiring > self._redis.exists(self._notes, *own)
        walk = Walk(self._redis, self._counts, self._notes, now, places, expire=expire, thorough=thorough)
        walk.begin()
        self._walk, self._due = walk, False

    def _end(self, walk: Walk, tables: Sequence[Keys]) -> list[Keys]:
        told, over, rest = walk.end(), time.monotonic(), _SHARE * walk.took_s
        if told is None:
            self._due, self._again = True, over + max(_LEAST_REST_S, rest)
            return []
        now, found = told
        gone = [keys for keys in tables if found[keys.head] < (now.least(keys.head) or 0)]
        there = [keys.head for keys in tables if keys not in gone]
        walk.keep({head: found[head] - now.net(head) for head in there} if walk.thorough else {})
        if walk.thorough:
            self._thorough_again, self._put_off, rest = over + max(_EVERY_S, rest), False, 0.0
        self._again = over + max(_LEAST_REST_S, rest)
        return gone
