"""One batch of one table → at most one change per key, with nothing lost on the way."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from headrace.model.change import Change, Op, collapse
from headrace.model.key import Key
from spark_jobs.carry import Burial, Carried

__all__ = ["Collapser", "Drained"]


@dataclass(frozen=True, slots=True)
class Drained:
    """A part of a batch, collapsed.

    Args:
        latest: One change per key.
        taken: Every change that went in, in order.
        severed: Keys that were deleted before their newest, partial image: the row that the sink still has
            under them is not the one that the image leaves out columns of.
        moved_until: New key of a moved row → version below which the sink has it under its old key.
    """

    latest: list[Change]
    taken: list[Change]
    severed: set[Key]
    moved_until: dict[Key, int]


class Collapser:
    """Keeps, per key, the newest change and the column values that newer partial images lack.

    Attributes:
        records: Every change taken since the last drain.
        severed: See :class:`Drained`.
    """

    def __init__(self) -> None:
        self._latest: dict[Key, Change] = {}
        self._last: dict[int, Change] = {}
        self._buried: dict[int, Burial] = {}
        self.records: list[Change] = []
        self.severed: set[Key] = set()
        self._moved_until: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._latest)

    def remember(self, carried: Carried) -> None:
        """Take what an earlier batch kept of a row whose new key this one may bring."""
        self._buried[carried.lsn] = carried.burial

    def add(self, change: Change) -> None:
        """Take one change; arrival order does not matter, positions do."""
        self.records.append(change)
        self._last[change.origin.partition] = change
        known = self._latest.get(change.key)
        if change.op is Op.DELETE:
            self._bury(change, known)
        elif change.absent:
            change = self._moved(change)
        if known is None:
            self._latest[change.key] = change
            return
        older, newer = (known, change) if known.position <= change.position else (change, known)
        if not newer.absent:
            self.severed.discard(change.key)
        elif older.op is Op.DELETE:
            self.severed.add(change.key)
        self._latest[change.key] = collapse(older, newer)

    @property
    def splittable(self) -> bool:
        """Return whether the batch may be cut here: not between the two halves of a key change.

        Where these are of several partitions, each is whole for itself.
        """
        return len(self._last) > 1 or not any(last.op is Op.DELETE for last in self._last.values())

    def halves(self) -> list[tuple[Change, Burial]]:
        """Return the delete that ends the only partition, perhaps half a key change, and what it buries."""
        return [
            (last, self._buried[last.origin.lsn])
            for last in self._last.values()
            if last.op is Op.DELETE and last.origin.lsn is not None and len(self._last) == 1
        ]

    def _bury(self, delete: Change, known: Change | None) -> None:
        """Note the row that a delete removes.

        A connector that restarts sends changes again. Of one that comes twice the first knows what was there.
        """
        lsn = delete.origin.lsn
        if lsn is not None and ((first := self._buried.get(lsn)) is None or first.key != delete.key):
            self._buried[lsn] = self._burial(delete, known)

    def _burial(self, delete: Change, known: Change | None) -> Burial:
        until = delete.position.version
        if known is None or known.op is Op.DELETE:
            return Burial(delete.key, until=until)
        if known.moved_from is None:
            return Burial(delete.key, known.row, until=until)
        return Burial(delete.key, known.row, known.moved_from, self._moved_until.get(known.key))

    def _moved(self, change: Change) -> Change:
        """Return a partial change that ends a key change, with what the row had under its old key.

        A changed key arrives as the delete of the old row and the creation of the new one, with one
        LSN; the new row lacks the large values that did not change.
        """
        burial = self._buried.get(change.origin.lsn) if change.origin.lsn is not None else None
        if burial is None or burial.key == change.key:
            return change
        if burial.until is not None:
            self._moved_until[change.key] = burial.until
        filled = change.filled(burial.row or {})
        return replace(filled, moved_from=burial.moved_from or burial.key)

    def drain(self) -> Drained:
        """Return what was taken since the last drain, and start over."""
        drained = Drained(list(self._latest.values()), self.records, self.severed, self._moved_until)
        self.severed, self._moved_until = set(), {}
        self._latest, self._last, self.records = {}, {}, []
        return drained
