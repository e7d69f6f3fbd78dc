"""One batch of one table → at most one change per key, with nothing lost on the way."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.change import Change, Op, collapse
from headrace.model.key import Key
from spark_jobs.carry import Carried
from spark_jobs.moves import Burial, Moves, Stay, tangled

__all__ = ["Collapser", "Drained"]


@dataclass(frozen=True, slots=True)
class Drained:
    """A part of a batch, collapsed.

    Args:
        latest: One change per key.
        taken: Every change that went in, in order.
        severed: Key that was deleted before its newest, partial image → version of that delete: an older row
            that the sink still has under the key is not the one that the image leaves out columns of.
        moved: Key of a row that had others before → under which the sink may have it.
    """

    latest: list[Change]
    taken: list[Change]
    severed: dict[Key, int]
    moved: dict[Key, list[Stay]]


class Collapser:
    """Keeps, per key, the newest change and the column values that newer partial images lack.

    Attributes:
        records: Every change taken since the last drain.
        severed: See :class:`Drained`.
    """

    def __init__(self) -> None:
        self._latest: dict[Key, Change] = {}
        self._last: dict[int, Change] = {}
        self._moves = Moves()
        self.records: list[Change] = []
        self.severed: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._latest)

    def remember(self, carried: Carried) -> None:
        """Take what an earlier batch kept of a row whose new key this one may bring."""
        self._moves.remember(carried.lsn, carried.burial)

    def add(self, change: Change) -> None:
        """Take one change; arrival order does not matter, positions do."""
        self.records.append(change)
        self._last[change.origin.partition] = change
        known = self._latest.get(change.key)
        if change.op is Op.DELETE:
            self._moves.bury(change, known)
        elif change.absent:
            change = self._moves.moved(change)
        if known is None:
            self._latest[change.key] = change
            return
        older, newer = (known, change) if known.position <= change.position else (change, known)
        if not newer.absent:
            self.severed.pop(change.key, None)
        elif older.op is Op.DELETE:
            self.severed[change.key] = max(older.position.version, self.severed.get(change.key, -1))
        self._latest[change.key] = collapse(older, newer)

    @property
    def splittable(self) -> bool:
        """Return whether the batch may be cut here: not between the two halves of a key change.

        Where these are of several partitions, each is whole for itself.
        """
        return len(self._last) > 1 or not any(last.op is Op.DELETE for last in self._last.values())

    def halves(self) -> list[tuple[Change, Burial]]:
        """Return the delete that ends the only partition, perhaps half a key change, and what it buries."""
        if len(self._last) > 1:
            return []
        ends = [last for last in self._last.values() if last.op is Op.DELETE]
        return [(end, burial) for end in ends if (burial := self._moves.burial(end)) is not None]

    def drain(self) -> list[Drained]:
        """Return what was taken since the last drain, and start over.

        It is one part, or some that have to be written one after the other: where a row moves to a key that
        another has left, a store that fails half-way may have overwritten what it has not yet moved.
        """
        drained = self._drained()
        if not tangled(drained.moved):
            return [drained]
        parts = []
        for part in self._moves.apart(drained.taken):
            for change in part:
                self.add(change)
            parts.append(self._drained())
        return parts

    def _drained(self) -> Drained:
        drained = Drained(list(self._latest.values()), self.records, self.severed, self._moves.drain())
        self._latest, self._last, self.records, self.severed = {}, {}, [], {}
        return drained
