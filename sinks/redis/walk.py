"""A walk over the keys of some tables, in small parts, while rows come and go.

A key that is made or removed meanwhile may have been passed or not. So the script that writes rows notes each
of them, as long as a walk is under way, with what became of it last. All other keys have been passed if they
are there; with these it is known to the row how many are there at the end.
"""

from __future__ import annotations

import time
import uuid
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sinks.redis.counts import BASE, Counts
from sinks.redis.layout import Layout
from sinks.redis.names import Keys, glob

__all__ = ["Walk"]

_PART_S = 0.05
_PAGE = 1_000
_MARK_MS = 600_000
"""The notes of a walk that nobody goes on with end by themselves."""

_ID = b""
"""The field of the notes that tells whose they are; no key is empty."""
_THERE = b"1"

_KEEP = """
if redis.call('HGET', KEYS[1], '') == ARGV[1] then
  if #ARGV > 1 then redis.call('HSET', KEYS[2], unpack(ARGV, 2)) end
  redis.call('DEL', KEYS[1])
end
"""


@dataclass(slots=True)
class Walk:
    """A walk that was begun.

    Args:
        redis: The client.
        counts: The key of the counts.
        notes: The key of the notes.
        before: The counts at its begin.
        tables: Head → keys and layout of each table.
        expire: Whether some of the keys may have been told to expire.
        thorough: Whether a row counts only under its own key.
    """

    redis: Any
    counts: str
    notes: str
    before: Counts
    tables: Mapping[bytes, tuple[Keys, Layout]]
    expire: bool
    thorough: bool
    took_s: float = 0.0
    _cursor: int = 0
    _seen: dict[bytes, array[int]] = field(default_factory=dict)
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def begin(self) -> None:
        """Have it noted which rows are made and removed."""
        with self.redis.pipeline(transaction=True) as asked:
            asked.delete(self.notes)
            asked.hset(self.notes, _ID, self._id)
            asked.pexpire(self.notes, _MARK_MS)
            asked.execute()

    def go_on(self) -> bool:
        """Walk on for a moment; return whether every key was passed."""
        began, heads = time.monotonic(), sorted(self.tables)
        self.redis.pexpire(self.notes, _MARK_MS)
        pattern, cursor = _pattern(heads), self._cursor
        while True:
            cursor, page = self.redis.scan(cursor, match=pattern, count=_PAGE)
            for head, keys in _by_table(heads, page).items():
                _, layout = self.tables[head]
                stay = _lasting(self.redis, layout, keys) if self.expire else keys
                # Others' keys are not to be missed later, nor to stand for rows.
                if self.thorough:
                    stay = layout.named(self.redis, stay, len(head))
                else:
                    stay = layout.ours(self.redis, stay)
                self._seen.setdefault(head, array("q")).extend(map(hash, stay))
            self._cursor = cursor
            if not cursor or time.monotonic() - began > _PART_S:
                break
        self.took_s += time.monotonic() - began
        return not cursor

    def end(self) -> tuple[Counts, dict[str, int]] | None:
        """Return the counts and, by head, how many rows of each table were there at that moment.

        None when that is not known: the store went back, or so much came and went that it was not noted.
        """
        with self.redis.pipeline(transaction=True) as asked:
            asked.info("server")
            asked.hgetall(self.counts)
            asked.hgetall(self.notes)
            server, fields, notes = asked.execute()
        now = Counts(str(server["run_id"]), {name: int(value) for name, value in fields.items()})
        if notes.pop(_ID, b"").decode() != self._id or not self.before.precedes(now):
            return None
        noted = _by_table(sorted(self.tables), list(notes))
        return now, {head.decode(): self._found(head, noted.get(head, ()), notes) for head in self.tables}

    def keep(self, bases: Mapping[str, int]) -> None:
        """End the walk; keep what tables were found to begin with, unless a target is made anew since."""
        told = [text for head, number in bases.items() for text in (f"{head}{BASE}", number)]
        self.redis.eval(_KEEP, 2, self.notes, self.counts, self._id, *told)

    def _found(self, head: bytes, noted: Sequence[bytes], notes: Mapping[bytes, bytes]) -> int:
        # One may have been passed twice.
        passed = np.unique(np.frombuffer(self._seen.get(head, array("q")), np.int64))
        moved = np.fromiter(map(hash, noted), np.int64, len(noted))
        return int((~np.isin(passed, moved)).sum()) + sum(notes[key] == _THERE for key in noted)


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
