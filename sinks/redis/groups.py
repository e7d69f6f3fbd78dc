"""How many rows go into one script call: so many that it pays, so few that Redis serves others too."""

from __future__ import annotations

__all__ = ["FIRST_ROWS", "GROUP_BYTES", "GROUP_ROWS", "next_rows"]

GROUP_ROWS = 256
FIRST_ROWS = 32
GROUP_BYTES = 512_000


def next_rows(rows: int, taken: int, size: int) -> int:
    """Return how many rows the next call takes after one of ``taken`` rows and ``size`` bytes."""
    return max(1, min(GROUP_ROWS, rows * 4, GROUP_BYTES * taken // max(size, 1)))
