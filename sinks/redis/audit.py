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

from sinks.redis.counts import ANY, BASE, LEAST, MADE, REMOVED, Counts, look
from sinks.redis.layout import Layout
from sinks.redis.names import Keys, counts_key, lasting_keys, notes_key, targets_key
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
        self._targets = targets_key(prefix)
        self._beside = lasting_keys(prefix)
        self._before: Counts | None = None
        self._fell: set[str] = set()
        """Tables that are not counted yet of which keys may have gone that nobody of ours removed."""
        self._due = True
        self._again = self._thorough_again = float("-inf")
        self._put_off = False
        """Whether a thorough walk has let a quick one go first."""
        self._walk: Walk | None = None

    def missing(self, tables: Sequence[tuple[Keys, Layout]]) -> list[Keys]:
        """Return the tables of which rows are gone that nobody of ours removed, once each.

        Their tokens are taken, and what is left of them is kept as what has to be there: rows that go while
        they are filled again are missed as well. Called about once a second.
        """
        now = look(self._redis, self._counts, self._beside)
        places = {keys.head.encode(): (keys, layout) for keys, layout in tables}
        if not places:
            return []
        if self._walk and not (self._walk.tables.keys() == places.keys() and self._walk.before.precedes(now)):
            self._walk, self._due = None, True
        moved = self._before is not None and now.others != self._before.others
        thorough = time.monotonic() >= self._thorough_again
        if moved and thorough and not self._put_off:
            self._walk, self._put_off, thorough = None, True, False
        uncounted = {keys.head for keys, _ in tables if not now.is_counted(keys.head)}
        self._fell = uncounted & (self._fell | self._falling(now, uncounted))
        self._due |= moved or thorough or bool(uncounted and self._walk is None)
        self._before = now
        if self._walk is None and self._due and time.monotonic() >= self._again:
            self._begin(now, places, thorough=thorough or bool(uncounted))
        if self._walk is None:
            return []
        walk, self._walk = self._walk, None  # one that fails is not gone on with
        if not walk.go_on():
            self._walk = walk
            return []
        return self._end(walk, [keys for keys, _ in tables])

    def fresh(self, keys: Keys) -> None:
        """Have the table's keys counted from here on, as its target is made, unless they are."""
        known = self._redis.hmget(self._counts, f"{keys.head}{BASE}", f"{keys.head}{LEAST}")
        if known == [None, None]:
            self.forget(keys)
            self._redis.hset(self._counts, f"{keys.head}{LEAST}", 0)

    def doubt(self, keys: Keys) -> None:
        """Have the table's keys counted by the next walk: some are gone, and nobody knows how many."""
        with self._redis.pipeline(transaction=True) as asked:
            asked.hset(self._counts, f"{keys.head}{LEAST}", ANY)
            asked.hdel(self._counts, f"{keys.head}{BASE}")
            asked.execute()
        self._again = float("-inf")

    def unlink(self, keys: Keys, rows: Sequence[bytes]) -> None:
        """Remove rows of the table, and count them as removed."""
        with self._redis.pipeline(transaction=True) as asked:
            asked.unlink(*rows)
            asked.hincrby(self._counts, f"{keys.head}{REMOVED}", len(rows))
            asked.execute()

    def forget(self, keys: Keys, *beside: str) -> None:
        """Take the table's counts away: its keys are gone, or only the next walk knows how many there are.

        What is kept ``beside`` its rows goes with them, for nobody counts that.
        """
        with self._redis.pipeline(transaction=True) as asked:
            asked.hdel(self._counts, *(f"{keys.head}{sign}" for sign in (MADE, REMOVED, BASE, LEAST)))
            asked.unlink(self._notes, *beside)  # of a walk that is under way, which counts nothing then
            asked.execute()

    def forget_all(self) -> None:
        """Take the counts of every table away."""
        self._redis.delete(self._counts, self._notes)

    def _falling(self, now: Counts, uncounted: set[str]) -> set[str]:
        """Return the tables of these of which keys may have gone since the look before."""
        before = self._before
        if before is None:  # nobody has looked on since their loss was found
            return {head for head in uncounted if now.is_anything(head)}
        # Where counts were taken away the numbers are not of the same rows.
        return uncounted if before.are_kept(now) and now.others < before.others else set()

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
        gone = [keys for keys in tables if self._is_gone(now, keys.head, found[keys.head])]
        # Who removes keys may have removed one that came while the walk passed: it was noted as there.
        doubtful = [keys for keys in gone if found[keys.head] >= (now.least(keys.head) or 0)]
        counted = [keys for keys in (tables if walk.thorough else gone) if keys not in doubtful]
        if gone:  # first, for once the rest is what has to be there nothing else tells that it is less
            self._redis.hdel(self._targets, *(keys.head for keys in gone))
        walk.keep({keys.head: found[keys.head] - now.net(keys.head) for keys in counted})
        for keys in doubtful:
            self.doubt(keys)
            self._fell.discard(keys.head)  # what goes from here on is seen as that
        if walk.thorough:
            self._thorough_again, self._put_off, rest = over + max(_EVERY_S, rest), False, 0.0
        self._again = over + max(_LEAST_REST_S, rest)
        return gone

    def _is_gone(self, now: Counts, head: str, found: int) -> bool:
        """Return whether rows of a table are gone.

        A table of which rows were there when it was made anew has to have what the first walk finds. Where
        keys went until then, rows of it that had been filled again may be among them.
        """
        least = now.least(head)
        if least is None:
            return False
        return found < least or (found > least and head in self._fell and not now.is_counted(head))
