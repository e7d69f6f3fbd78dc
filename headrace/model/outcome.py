"""What became of a change at a sink: a value, never an exception."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["APPLIED", "ROW_MISSING", "STALE", "Applied", "Deferred", "Outcome", "Rejected", "Stale"]


@dataclass(frozen=True, slots=True)
class Applied:
    """The sink now shows this change (or did so already at exactly this position)."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The sink holds a newer state of the key; nothing was written."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The store will never take this change as it is; it belongs in the dead letter queue.

    Args:
        code: Stable upper-case identifier, e.g. ``ES_MAPPING_CONFLICT``.
        reason: The store's own words, without row values where the store allows it.
    """

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """The store asks for patience; the same change may be applied later.

    Args:
        retry_after: Seconds to wait before the next try.
        reason: Why, in the store's words.
        of_row: Whether it is about the row alone, which somebody else writes all the time.
    """

    retry_after: float
    reason: str = ""
    of_row: bool = False


Outcome = Applied | Stale | Rejected | Deferred

APPLIED = Applied()
STALE = Stale()
ROW_MISSING = Rejected(
    "PARTIAL_WITHOUT_ROW",
    "The change leaves some columns as they are, but the sink holds no such row, or none that can be read.",
)
"""What every sink answers to a partial change of a row it does not hold."""
