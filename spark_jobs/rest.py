"""How long a query rests after a batch."""

from __future__ import annotations

from spark_jobs.ranges import SMALL

__all__ = ["rest_after"]

_MANY = 50
_BUSY_S = 0.25
_LONGEST_REST_S = 0.5
_PACED = 4
"""So many times as long as its batch took may a sink with a pace rest."""


def rest_after(records: int, took: float, pace: float) -> float:
    """Return how many seconds to wait after a batch, so that the next is larger; 0 where that gains nothing.

    What a small batch costs hardly depends on its size, so a rest as long as the work halves the work.
    Where much comes in, and a batch takes long because the processor is wanted by all, that is done for
    every sink. One with a pace rests longer, as long as a batch's share of the time is large. Where little
    comes in nobody rests: that would make those few wait, and save nothing that anybody wants.
    """
    if not _MANY < records <= SMALL:
        return 0.0
    rest = min(pace - took, _PACED * took)
    if took > _BUSY_S:
        rest = max(rest, min(_LONGEST_REST_S, took))
    return max(rest, 0.0)
