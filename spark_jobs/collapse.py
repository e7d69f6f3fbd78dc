"""One batch of one table → at most one change per key, with nothing lost on the way."""

from __future__ import annotations

from dataclasses import replace

from headrace.model.change import Change, Op, collapse
from headrace.model.key import Key

__all__ = ["Collapser"]


class Collapser:
    """Keeps, per key, the newest change and the column values that newer partial images lack."""

    def __init__(self) -> None:
        self._latest: dict[Key, Change] = {}
        self._buried: tuple[Change, Change | None] | None = None
        self.records: list[Change] = []

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, change: Change) -> None:
        """Take one change; arrival order does not matter, positions do."""
        self.records.append(change)
        known = self._latest.get(change.key)
        if change.op is Op.DELETE:
            self._buried = (change, known)
        elif change.partial:
            change = self._moved(change)
        if known is None:
            self._latest[change.key] = change
        elif known.position <= change.position:
            self._latest[change.key] = collapse(known, change)
        else:
            self._latest[change.key] = collapse(change, known)

    @property
    def splittable(self) -> bool:
        """Return whether the batch may be cut here: not between the two halves of a key change."""
        return not self.records or self.records[-1].op is not Op.DELETE

    def _moved(self, change: Change) -> Change:
        """Return a partial change that ends a key change, with what the row had under its old key.

        A changed key arrives as the delete of the old row and the creation of the new one, with one
        LSN; the new row lacks the large values that did not change.
        """
        if self._buried is None or change.origin.lsn is None:
            return change
        burial, before = self._buried
        if burial.origin.lsn != change.origin.lsn or burial.key == change.key:
            return change
        if before is None or before.op is Op.DELETE:
            return replace(change, moved_from=burial.key)
        return replace(change.filled(before.row), moved_from=before.moved_from or burial.key)

    def drain(self) -> tuple[list[Change], list[Change]]:
        """Return (one change per key, every change taken since the last drain) and start over."""
        latest, taken = list(self._latest.values()), self.records
        self._latest, self.records = {}, []
        return latest, taken
