"""Whether a table's keys are still there: a token that goes with everything, and a row that stands for all.

Somebody may delete the keys of one table. One row of each table is remembered, the first that is written, and
looked at. A row that Headrace removed has left a tombstone; one that is gone without was removed by somebody
else, and then other rows may be gone, too. Fewer keys than all are found missing by an audit, which takes
longer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.model.change import Change, Op
from headrace.model.outcome import APPLIED, Outcome
from sinks.redis.audit import Audit
from sinks.redis.layout import Layout
from sinks.redis.names import Keys, glob, targets_key, witnesses_key

__all__ = ["Witnesses", "first_written"]

_PAGE = 1_000
_PAGES = 5
"""So many pages of keys are looked through at a time, for a table that has no witness."""

_TRIED = 10
_AGAIN_S = 10.0


def first_written(changes: Sequence[Change], outcomes: Sequence[Outcome]) -> Change | None:
    """Return a change whose row is there now."""
    pairs = zip(changes, outcomes, strict=True)
    return next((one for one, said in pairs if said is APPLIED and one.op is Op.UPSERT), None)


class Witnesses:
    """The tokens and witnesses of one sink.

    Args:
        redis: The client.
        prefix: The sink's prefix.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._targets = targets_key(prefix)
        self._witnesses = witnesses_key(prefix)
        self._audit = Audit(redis, prefix)
        self._cursors: dict[str, int] = {}
        self._again: dict[str, float] = {}
        self._attested: set[str] = set()

    def stand_for(self, keys: Keys) -> None:
        """Give the table a token, if it has none."""
        if self._redis.hsetnx(self._targets, keys.head, uuid.uuid4().hex):
            self.doubt(keys)  # what stood for the target before may have gone with it
            self._audit.fresh(keys)
        self._again.pop(keys.head, None)

    def exists(self, keys: Keys) -> bool:
        """Return whether the table has a token, or something of its own beside its rows."""
        beside = self._redis.exists(keys.young, keys.elder, keys.prepared, keys.leaving)
        return bool(beside or self._redis.hexists(self._targets, keys.head))

    def written(self, keys: Keys, change: Change) -> None:
        """Let a row that has been written stand for its table, if none does."""
        if keys.head not in self._attested:
            self._redis.hsetnx(self._witnesses, keys.head, change.key.id)
            self._attested.add(keys.head)

    def doubt(self, keys: Keys) -> None:
        """Let another row stand for the table."""
        self._attested.discard(keys.head)
        self._redis.hdel(self._witnesses, keys.head)

    def renamed(self, keys: Keys) -> None:
        """Let another row stand for the table, and count it anew: keys come and go that nobody counts."""
        self.doubt(keys)
        self._audit.forget(keys)

    def unlink(self, keys: Keys, rows: Sequence[bytes]) -> None:
        """Remove rows of the table, and count them: those of other tables are not to be missed for it."""
        self._audit.unlink(keys, rows)

    def forget(self, keys: Keys) -> None:
        """Take all that is kept of a table beside its rows: it is no more."""
        self._redis.hdel(self._targets, keys.head)
        self._audit.forget(keys, keys.young, keys.elder, keys.prepared, keys.leaving)
        self.doubt(keys)

    def forget_all(self) -> None:
        """Take the token and the witness of every table of the sink."""
        self._attested.clear()
        self._redis.delete(self._targets, self._witnesses)
        self._audit.forget_all()

    def tokens(self, tables: Sequence[tuple[Keys, Layout]], *, counted: bool = True) -> dict[str, str]:
        """Return head → token of the tables whose keys are there; ``counted`` ones also by their counts."""
        if not tables:
            return {}
        own = {keys.head: keys for keys, _ in tables}
        for keys in self._audit.missing(tables) if counted else ():
            self.doubt(keys)
        heads = list(own)
        with self._redis.pipeline(transaction=False) as asked:
            asked.hmget(self._targets, heads)
            asked.hmget(self._witnesses, heads)
            tokens, witnesses = asked.execute()
        found = {head: token.decode() for head, token in zip(heads, tokens, strict=True) if token}
        known = {head: key for head, key in zip(heads, witnesses, strict=True) if key and head in found}
        for head in self._gone(known):
            self.doubt(own[head])
            if self._buried(own[head], known[head]):
                del known[head]
            else:
                self._redis.hdel(self._targets, head)
                self._audit.doubt(own[head])
                del found[head]
        for keys, layout in tables:
            if keys.head in found and keys.head not in known:
                self._choose(keys, layout)
        return found

    def _gone(self, known: Mapping[str, bytes]) -> list[str]:
        if not known:
            return []
        with self._redis.pipeline(transaction=False) as asked:
            for head, key in known.items():
                asked.exists(head.encode() + key)
            there = asked.execute()
        return [head for head, one in zip(known, there, strict=True) if not one]

    def _buried(self, keys: Keys, key: bytes) -> bool:
        return any(self._redis.hexists(stones, key) for stones in (keys.young, keys.elder))

    def _choose(self, keys: Keys, layout: Layout) -> None:
        """Look for a row to stand for the table, some pages at a time and now and then."""
        now = time.monotonic()
        if now < self._again.get(keys.head, 0.0):
            return
        cursor = self._cursors.pop(keys.head, 0)
        for _ in range(_PAGES):
            cursor, page = self._redis.scan(cursor, match=glob(keys.head) + "*", count=_PAGE)
            versions = layout.versions(self._redis, page[:_TRIED])
            for key, version in zip(page, versions, strict=False):
                if version is not None:
                    self._redis.hset(self._witnesses, keys.head, key[len(keys.head.encode()) :])
                    return
            if not cursor:
                break
        if cursor:
            self._cursors[keys.head] = cursor
        self._again[keys.head] = now + _AGAIN_S
