"""One batch of one table → at most one change per key, with nothing lost on the way."""

from __future__ import annotations

from headrace.model.change import Change, collapse
from headrace.model.key import Key

__all__ = ["Collapser"]


class Collapser:
    """Keeps, per key, the newest change and the column values that newer partial images lack."""

    def __init__(self) -> None:
        self._latest: dict[Key, Change] = {}
        self.records: list[Change] = []

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, change: Change) -> None:
        """Take one change; arrival order does not matter, positions do."""
        self.records.append(change)
        known = self._latest.get(change.key)
        if known is None:
            self._latest[change.key] = change
        elif known.position <= change.position:
            self._latest[change.key] = collapse(known, change)
        else:
            self._latest[change.key] = collapse(change, known)

    def drain(self) -> tuple[list[Change], list[Change]]:
        """Return (one change per key, every change taken since the last drain) and start over."""
        latest, taken = list(self._latest.values()), self.records
        self._latest, self.records = {}, []
        return latest, taken
