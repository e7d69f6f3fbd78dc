"""A connector that gave up is started again, ever more rarely, as long as nothing is lost.

Connect leaves a task that has failed as it is, for instance one whose records Kafka refused for a while.
Until somebody looks, nothing arrives, and the database keeps its log for the slot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.control.connect import ConnectorState

__all__ = ["Revival"]

_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0
_TRIES_OF_A_LOAD = 3
"""Each of them reads every table from its beginning."""


@dataclass
class Revival:
    """Says when one connector is to be started again.

    Args:
        clock: Seconds that only grow.
    """

    clock: Callable[[], float] = time.monotonic
    _pause: float = field(default=_FIRST_PAUSE_S, init=False)
    _due: float | None = field(default=None, init=False)
    _ran_since: float | None = field(default=None, init=False)
    _loads: int = field(default=0, init=False)

    def is_due(self, state: ConnectorState, *, loading: bool = False) -> bool:
        """Return whether to start the connector now; it counts as done.

        Args:
            state: How it is.
            loading: Whether it has not ended its initial snapshot.
        """
        now = self.clock()
        if not state.failed:
            self._due = None
            self._ran_since = now if self._ran_since is None else self._ran_since
            # A load may fail after hours, so that it runs proves nothing.
            if not loading and now - self._ran_since > _LONGEST_PAUSE_S:
                self._pause, self._loads = _FIRST_PAUSE_S, 0
            return False
        self._ran_since = None
        if loading and self._loads == _TRIES_OF_A_LOAD:
            return False
        if self._due is None:
            self._due = now + self._pause
        if now < self._due:
            return False
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
        self._due = now + self._pause
        self._loads += loading
        return True
