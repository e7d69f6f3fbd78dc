"""Whether Redis has evicted keys, or may: a row that goes without a word is not looked for by anybody.

The server counts the keys that it has evicted. The count is noted beside the tables' tokens, and goes with
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.model.errors import SinkError
from sinks.redis.names import targets_key

__all__ = ["Evictions"]

_FIELD = b"%evictions"
"""No table's keys begin so: a percent sign is written with two digits behind it."""
_POSSIBLE = b"keys may have been evicted"
_REMEDY = "CONFIG SET maxmemory-policy noeviction  (and the same in redis.conf)"


class Evictions:
    """What was evicted since it was last noted, for one sink.

    Args:
        redis: The client.
        prefix: The sink's prefix.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._targets = targets_key(prefix)

    def happened(self) -> bool:
        """Return whether keys were evicted since the last :meth:`note`; the first call of all notes.

        Raises:
            SinkError: When the server would evict keys now (``REDIS_EVICTS``).
        """
        told = self._told()
        policy = str(told.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction":
            # The server's count may be set back meanwhile: by a restart, or by CONFIG RESETSTAT.
            self._redis.hset(self._targets, _FIELD, _POSSIBLE)
            raise SinkError(
                f"maxmemory-policy is {policy}: Redis would drop rows without a word.",
                code="REDIS_EVICTS",
                hint=f"{_REMEDY}; what was dropped is then filled again by itself.",
            )
        noted = self._redis.hget(self._targets, _FIELD)
        if noted is None:
            self._redis.hset(self._targets, _FIELD, _spelled(told))
            return False
        if noted == _POSSIBLE:
            return True
        run, _, count = noted.decode().partition(":")
        before, evicted = int(count), int(told["evicted_keys"])
        counts_anew = run != str(told["run_id"]) or evicted < before
        return evicted > (0 if counts_anew else before)

    def forget(self) -> None:
        """Take what was noted away, when it is all that is left of the sink."""
        if self._redis.hkeys(self._targets) == [_FIELD]:
            self._redis.delete(self._targets)

    def note(self) -> None:
        """Remember how many were evicted until now."""
        self._redis.hset(self._targets, _FIELD, _spelled(self._told()))

    def _told(self) -> Mapping[str, Any]:
        with self._redis.pipeline(transaction=False) as asked:
            for section in ("server", "memory", "stats"):
                asked.info(section)
            return {name: value for part in asked.execute() for name, value in part.items()}


def _spelled(told: Mapping[str, Any]) -> str:
    return f"{told['run_id']}:{told['evicted_keys']}"
