"""How fast a run may read: so many rows a second, and only while the database answers soon enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.model.errors import HeadraceError

__all__ = ["Pace", "Strain"]

_LOOK_EVERY_S = 2.0
_LONGEST_REST_S = 10.0
"""After so long a run reads for a moment whatever the database says, so that it comes to its end."""


@dataclass
class Pace:
    """Keeps reading below so many rows a second; without a limit it never rests.

    With one it rests right at the beginning: a small table would be read whole before the first look.

    Args:
        limit: Rows a second.
        clock: Monotonic.
    """

    limit: int | None
    clock: Callable[[], float] = time.monotonic
    _begun: float | None = None
    _first: int = 0

    def ahead(self, rows: int) -> bool:
        """Return whether more rows were read than the time allows."""
        if self.limit is None:
            return False
        now = self.clock()
        if self._begun is None:
            self._begun, self._first = now, rows
        return rows - self._first >= self.limit * (now - self._begun)


@dataclass
class Strain:
    """Has reading rest while the database takes long to answer.

    Args:
        limit_s: What is long, seconds.
        measure: Tells how long a small question takes, seconds.
        clock: Monotonic.
    """

    limit_s: float
    measure: Callable[[], float]
    clock: Callable[[], float] = time.monotonic
    took_s: float = 0.0
    resting: bool = False
    _looked: float = float("-inf")
    _since: float = 0.0

    def look(self) -> bool:
        """Return whether to rest; asks the database now and then only."""
        now = self.clock()
        if now - self._looked < _LOOK_EVERY_S:
            return self.resting
        self._looked = now
        try:
            self.took_s = self.measure()
        except HeadraceError:
            self.took_s = 0.0  # a database that is away is no reason to rest: nothing is read from it
        rested = self.resting and now - self._since >= _LONGEST_REST_S
        rest = self.took_s > self.limit_s and not rested
        if rest and not self.resting:
            self._since = now
        self.resting = rest
        return rest

    @property
    def reason(self) -> str:
        """Return why reading rests; nothing when it does not."""
        if not self.resting:
            return ""
        return f"rests, for an answer takes the database {self.took_s * 1000:,.0f} ms"
