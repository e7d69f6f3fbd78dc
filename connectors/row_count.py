"""How many rows a table had at one moment, and which transactions had ended by then."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RowCount"]

_IDS = 1 << 32
"""Numbers of transactions, as records tell them, begin anew after so many."""


@dataclass(frozen=True, slots=True)
class RowCount:
    """A count of all rows.

    Args:
        rows: How many there were.
        floor: Transactions before this one had ended.
        ceiling: This one, and those after it, had not begun.
        running: Those between the two that had not ended.
    """

    rows: int
    floor: int
    ceiling: int
    running: frozenset[int]

    def saw(self, transaction: int) -> bool:
        """Return whether the count includes what a transaction has committed.

        Args:
            transaction: Its number as a record tells it; one of more than 2³¹ before counts as a newer one.
        """
        ahead = (transaction - self.ceiling) % _IDS
        number = self.ceiling + ahead if ahead < _IDS // 2 else self.ceiling + ahead - _IDS
        return number < self.floor or (number < self.ceiling and number not in self.running)
