"""Who wins: the incoming changes against what the table and the tombstones say of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.model.change import Change, Op
from headrace.model.outcome import APPLIED, ROW_MISSING, STALE, Outcome, Rejected

__all__ = ["Verdict", "judge", "numbers"]


@dataclass(slots=True)
class Verdict:
    """What becomes of each change.

    Attributes:
        outcomes: One per change.
        write: Whether the change's row is to be written.
        bury: Whether the change is a deletion to be remembered.
        remove: Whether the stored row of the change's key is to go, because it is replaced or deleted.
        partial: Whether the change leaves columns as they are.
    """

    outcomes: list[Outcome]
    write: np.ndarray
    bury: np.ndarray
    remove: np.ndarray
    partial: np.ndarray

    def reject(self, number: int, why: Rejected) -> None:
        """Take one change out: nothing of it is applied."""
        self.outcomes[number] = why
        self.write[number] = False
        self.remove[number] = False


_DELETE = Op.DELETE


def numbers(chosen: np.ndarray) -> list[int]:
    """Return the positions at which ``chosen`` is true."""
    positions: list[int] = np.flatnonzero(chosen).tolist()
    return positions


def judge(
    changes: Sequence[Change], versions: np.ndarray, rows: np.ndarray, tombstones: np.ndarray
) -> Verdict:
    """Compare versions.

    Args:
        changes: At most one per key.
        versions: The version of each.
        rows: Version of the stored row of each change's key, 0 for none.
        tombstones: Version of the deletion remembered of each change's key, 0 for none.
    """
    count = len(changes)
    deletes, absent = [change.op is _DELETE for change in changes], [change.absent for change in changes]
    delete, partial = (np.fromiter(map(bool, which), np.bool_, count) for which in (deletes, absent))
    stored = np.maximum(rows, tombstones)
    # A truncate leaves a tombstone of its own version; a row that was written at that very position is newer.
    fresh = (versions > rows) & np.where(delete, versions > tombstones, versions >= tombstones)
    # A row older than its own tombstone is one whose removal a crash prevented: it counts as gone.
    alive = (rows > 0) & (rows >= tombstones)
    missing = fresh & partial & ~alive
    write = fresh & ~delete & ~missing
    removed = delete & (versions >= stored) & (rows < versions)
    outcomes: list[Outcome] = [APPLIED] * count
    for number in numbers(versions < stored):
        outcomes[number] = STALE
    for number in numbers(missing):
        outcomes[number] = ROW_MISSING
    return Verdict(outcomes, write, fresh & delete, (rows > 0) & (write | removed | ~alive), partial)
