"""What a topic tells of TRUNCATE: by which transactions it was, and which rows came after it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Told", "Truncates"]

_TRUNCATE = b'"op":"t"'
"""In a record of a truncate, and in few others: a column of that name may hold that value."""
_SOURCE = b'"source":{'
_TRANSACTION = re.compile(rb'"txId":(\d+)')
_POSITION = re.compile(rb'"lsn":(\d+)')
_MOST = 1_000
"""So many truncates of a table are remembered, the newest."""
_IDS = 1 << 32
"""Numbers of transactions begin anew after so many."""
_ANY = ""
_LATEST = 2**63 - 1
"""Behind every row: of a truncate whose position an older version has not kept."""


@dataclass(frozen=True, slots=True)
class Told:
    """What was read of a topic, JSON-ready.

    Args:
        truncates: Transaction and position in the log of each truncate.
        rows: The last transaction that is asked about → the two that wrote a row last, of those that are not
            newer, with that row's position. Empty: of all.
    """

    truncates: Sequence[Sequence[int]] = ()
    rows: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, kept: Mapping[str, Any] | Sequence[int]) -> Told:
        """Read what was kept; an older version kept transactions alone."""
        if isinstance(kept, Mapping):
            return cls(**kept)
        return cls([[transaction, _LATEST] for transaction in kept])

    def did(self, first: int, last: int) -> bool:
        """Return whether one of the truncates may have emptied a partition that is empty, or fewer, since.

        One that rows have followed, of which the partition may have had some, is not what has removed those.

        Args:
            first: The first transaction that may have done it.
            last: The last one, which has done something to it.
        """
        return any(
            _within(transaction, first, last)
            and (transaction == last or not self._is_followed(transaction, position, last))
            for transaction, position in self.truncates
        )

    def _is_followed(self, transaction: int, position: int, last: int) -> bool:
        rows = self.rows.get(str(last), self.rows.get(_ANY, ()))
        return any(by != transaction and at > position for by, at in rows)


class Truncates:
    """Reads records of a topic, partition by partition.

    Args:
        told: What was read before.
        lasts: The last transactions that are asked about.
    """

    def __init__(self, told: Told, lasts: Collection[int]) -> None:
        self._truncates = [list(one) for one in told.truncates]
        before = told.rows.get(_ANY, ())
        self._rows = {
            key: [list(row) for row in told.rows.get(key, before)] for key in (_ANY, *map(str, lasts))
        }
        self._lasts = tuple(lasts)

    def read(self, record: bytes) -> None:
        """Note what a record tells; rows that a snapshot has read were written by no transaction."""
        begin = record.rfind(_SOURCE)
        found = _TRANSACTION.search(record, begin) if begin >= 0 else None
        if found is None:
            return
        transaction, position = int(found[1]), _POSITION.search(record, begin)
        place = [transaction, int(position[1]) if position else 0]
        if _TRUNCATE in record and json.loads(record).get("op") == "t":
            self._truncates = [*self._truncates, place][-_MOST:]
            return
        for key in (_ANY, *(str(last) for last in self._lasts if _is_not_newer(transaction, last))):
            others = [row for row in self._rows[key] if row[0] != transaction]
            mine = max([place, *(row for row in self._rows[key] if row[0] == transaction)], key=_at)
            self._rows[key] = sorted([*others, mine], key=_at)[-2:]

    @property
    def told(self) -> Told:
        """Return all that was read."""
        return Told(self._truncates, self._rows)


def _at(row: Sequence[int]) -> int:
    return row[1]


def _within(transaction: int, first: int, last: int) -> bool:
    """Return whether a transaction is one from ``first`` to ``last``, by numbers that begin anew."""
    return (transaction - first) % _IDS <= (last - first) % _IDS


def _is_not_newer(transaction: int, last: int) -> bool:
    return (last - transaction) % _IDS < _IDS // 2
