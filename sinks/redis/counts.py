"""How many rows of each table have to be there, as the script that writes rows counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["ANY", "BASE", "LEAST", "MADE", "REMOVED", "Counts", "look"]

MADE = "+"
REMOVED = "-"
BASE = "="
"""Rows that were there when a table was counted, less those made, plus those removed until then."""
LEAST = "?"
"""The same of a table that was not counted yet: no fewer than this."""
ANY = -(1 << 50)
"""So few that any number of rows is no fewer."""

_SIGNS = {MADE.encode(): 1, REMOVED.encode(): -1}


@dataclass(frozen=True, slots=True)
class Counts:
    """What was made and removed of each table since its target was made; what was there then.

    Args:
        server: The run of the server that told it.
        fields: As they are kept: a table's head and one of the signs above → number.
        lasting: Keys of the database that do not expire, but those beside the rows.
        expiring: Keys that do.
    """

    server: str
    fields: Mapping[bytes, int]
    lasting: int = 0
    expiring: int = 0

    def is_counted(self, head: str) -> bool:
        """Return whether the table's keys were counted since its target was made."""
        return f"{head}{BASE}".encode() in self.fields

    def is_anything(self, head: str) -> bool:
        """Return whether any number of rows of a table is enough until it is counted."""
        return not self.is_counted(head) and self._of(head, LEAST) == ANY

    def least(self, head: str) -> int | None:
        """Return how many rows have to be there; None where nobody knows."""
        base = self._of(head, BASE)
        base = self._of(head, LEAST) if base is None else base
        return None if base is None else base + self.net(head)

    def net(self, head: str) -> int:
        """Return how many more rows were made than removed."""
        return (self._of(head, MADE) or 0) - (self._of(head, REMOVED) or 0)

    def precedes(self, now: Counts) -> bool:
        """Return whether nothing went back meanwhile: neither the server nor what it holds."""
        return self.server == now.server and self.are_kept(now)

    def are_kept(self, now: Counts) -> bool:
        """Return whether what was counted was counted on from there, and nothing of it taken away."""
        counts = {name: value for name, value in self.fields.items() if name[-1:] in _SIGNS}
        return all(now.fields.get(name, 0) >= value for name, value in counts.items())

    @property
    def others(self) -> int:
        """The keys that last, less all rows that were made; where it changes, others made or removed keys."""
        return self.lasting - sum(_SIGNS.get(name[-1:], 0) * value for name, value in self.fields.items())

    def _of(self, head: str, sign: str) -> int | None:
        return self.fields.get(f"{head}{sign}".encode())


def look(redis: Any, key: str, own: Sequence[str]) -> Counts:
    """Return the counts that are kept under ``key``, with the numbers of keys of the database but ``own``."""
    with redis.pipeline(transaction=True) as asked:  # at one moment, for somebody may write
        asked.info("server")
        asked.info("keyspace")
        asked.hgetall(key)
        asked.exists(*own)
        server, keyspace, fields, beside = asked.execute()
    here = keyspace.get(f"db{redis.connection_pool.connection_kwargs.get('db') or 0}", {})
    keys, expiring = int(here.get("keys", 0)), int(here.get("expires", 0))
    counts = {name: int(value) for name, value in fields.items()}
    return Counts(str(server["run_id"]), counts, keys - expiring - beside, expiring)
