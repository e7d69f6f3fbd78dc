"""Rows whose key changes within a batch: where the sink may have them, and what is known of them.

A changed key arrives as the delete of the old row and the creation of the new one, with one LSN; the new row
lacks the large values that did not change. The row that has them lies in the sink under its old key, unless
the records were applied before, with batches that ended elsewhere: then it lies under any of the keys that it
has had within this batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from headrace.model.change import Change, Op
from headrace.model.key import Key
from sinks.base import Stored

__all__ = ["Burial", "Moves", "Stay", "found_in", "tangled"]


class Stay(Struct, frozen=True, gc=False):
    """A time that a row had one key: its versions from ``since`` to below ``until``.

    What the sink has under the key of another version is another row.
    """

    key: Key
    since: int
    until: int


class Burial(Struct, frozen=True):
    """A row that was deleted, as it was.

    Args:
        key: Its key.
        row: Its values, as far as they are known.
        stays: Where the sink may have those that ``row`` lacks, oldest first; none where an earlier batch
            has looked.
    """

    key: Key
    row: Mapping[str, Any] = field(default_factory=dict)
    stays: list[Stay] = field(default_factory=list)


class _Tenancy(Struct, frozen=True):
    """A row under the key it moved to: since when, and its stays before that."""

    since: int
    before: list[Stay]


class Moves:
    """The deleted rows of a batch, by LSN, and the rows that moved and have not been deleted since."""

    def __init__(self) -> None:
        self._buried: dict[int, Burial] = {}
        self._moved: dict[Key, _Tenancy] = {}

    def remember(self, lsn: int, burial: Burial) -> None:
        """Take what an earlier batch kept of a row whose new key this one may bring."""
        self._buried[lsn] = burial

    def bury(self, delete: Change, known: Change | None) -> None:
        """Note the row that a delete removes, of which ``known`` is what this batch has brought.

        A connector that restarts sends changes again. Of one that comes twice the first knows what was there.
        """
        tenancy = self._moved.pop(delete.key, None)
        lsn, first = delete.origin.lsn, self.burial(delete)
        if lsn is None or (first is not None and first.key == delete.key):
            return
        if known is not None and known.op is Op.DELETE:
            known = None
        # One list for the whole way: a row that moves often would be copied all over each time.
        stays, since = (tenancy.before, tenancy.since) if tenancy is not None else ([], 0)
        stays.append(Stay(delete.key, since, delete.position.version))
        self._buried[lsn] = Burial(delete.key, known.row if known is not None else {}, stays)

    def moved(self, change: Change) -> Change:
        """Return a partial change that ends a key change, with what is known of the row under its old key."""
        burial = self.burial(change)
        if burial is None or burial.key == change.key:
            return change
        self._moved.setdefault(change.key, _Tenancy(change.position.version, burial.stays))
        return change.filled(burial.row)

    def burial(self, half: Change) -> Burial | None:
        """Return what a delete has buried, or what a create may have dug up."""
        return self._buried.get(half.origin.lsn) if half.origin.lsn is not None else None

    def drain(self) -> dict[Key, list[Stay]]:
        """Return the stays of each row that has moved; what comes next finds these under their new keys."""
        moved, self._moved = self._moved, {}
        return {key: tenancy.before for key, tenancy in moved.items()}

    def apart(self, taken: Iterable[Change]) -> Iterator[list[Change]]:
        """Yield the changes in parts, in none of which a row moves to a key that another has left."""
        part: list[Change] = []
        left: set[Key] = set()
        for change in taken:
            burial = self.burial(change) if change.absent else None
            if burial is not None and burial.key != change.key:
                if change.key in left:
                    cut = len(part) - (part[-1].key == burial.key)
                    yield part[:cut]
                    part, left = part[cut:], set()
                left.add(burial.key)
            part.append(change)
        yield part


def tangled(moved: Mapping[Key, Iterable[Stay]]) -> bool:
    """Return whether one of the rows that moved goes where another is to be found."""
    return any(stay.key in moved and stay.key != goal for goal, stays in moved.items() for stay in stays)


def found_in(stays: Iterable[Stay], rows: Mapping[Key, Stored]) -> Mapping[str, Any]:
    """Return what the sink has of a row that moved, where ``rows`` are its rows; empty if it has nothing."""
    for stay in stays:
        row = rows.get(stay.key)
        if row is not None and stay.since <= row.version < stay.until:
            return row.row
    return {}
