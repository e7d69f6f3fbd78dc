"""How often a query asks Kafka for news: less often once none have come for a while."""

from __future__ import annotations

import logging
import time

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BRISK_MS", "IDLE_MS", "Polling"]

_log = logging.getLogger("headrace")

BRISK_MS = 20
"""While changes come in. Each question costs this process, and the broker, some milliseconds of a core."""
IDLE_MS = 100
"""While none do: the next one is seen 40 ms later in the mean."""

_QUIET_S = 2.0
_FIELD = "pollingDelayMs"


class Polling:
    """Sets the time between two questions of one query.

    Spark reads its ``spark.sql.streaming.pollingDelay`` when a query is made and has no way to change it
    later, so the query's own field is set. A Spark without that field goes on at the pace it began with.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._pace = BRISK_MS
        self._batch: int | None = None
        self._heard = time.monotonic()
        self._refused = self._told = False

    def tick(self, batch: int | None) -> None:
        """Choose the pace; to be called several times a second.

        Args:
            batch: The number of the batch that was applied last.
        """
        now = time.monotonic()
        if batch != self._batch:
            self._batch, self._heard, self._refused = batch, now, False
        pace = IDLE_MS if now - self._heard > _QUIET_S else BRISK_MS
        if pace == self._pace or (self._refused and pace == IDLE_MS):
            return
        try:
            self._set(pace)
        except Exception as error:  # noqa: BLE001 - whatever it is, the query itself is well
            if not self._told:
                why = " ".join(str(error).split())
                _log.warning("a query asks Kafka every %d ms, whatever it has to do: %s", self._pace, why)
            self._refused = self._told = True
        else:
            self._pace = pace

    def _set(self, pace: int) -> None:
        execution = self._query._jsq.streamingQuery()
        field = execution.getClass().getSuperclass().getDeclaredField(_FIELD)
        field.setAccessible(True)
        field.setLong(execution, pace)
