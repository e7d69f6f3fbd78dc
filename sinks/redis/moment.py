"""Whether Redis was put back between a look at its progress and the writing of more.

A look leaves a mark of its own. Progress is written only where the mark still stands: a restored Redis has
an earlier one or none, and the progress that it has gone back to is the only evidence of that. The mark is
renewed several times a second, for a batch may last longer than it takes to make a backup and put it back.
Nor is it written by another server than the one that was looked at: a replica that has taken over, or one
that was started anew, may have the mark, and lack rows that were written after it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from headrace.model.errors import SinkWentBack
from sinks.redis.names import moments_key

__all__ = ["Moment"]

_MOST_WRITERS = 100

_BEAT_S = 0.25
_UNUSED_S = 600.0
"""So long after the last look the mark is renewed no more: another object has taken over."""

# KEYS: the marks, and the hash of progress. ARGV: the writer, what its mark has to say, what it is to say,
# the run of the server that has it, fields and values. It may say already what it is to: then the answer to
# a renewal was lost.
_RENEW = """
local said = redis.call('HGET', KEYS[1], ARGV[1])
if said ~= ARGV[2] and said ~= ARGV[3] then return 0 end
if (string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '') ~= ARGV[4] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 1
"""


class Moment:
    """The mark of one writer.

    Args:
        redis: The client.
        prefix: The sink's prefix.
    """

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._marks = moments_key(prefix)
        self._writer = uuid.uuid4().hex
        self._mark = 0
        self._run = ""
        self._stands = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._used_until = 0.0
        self._beating: threading.Thread | None = None

    def look(self, progress: str, fields: Sequence[str]) -> list[bytes | None]:
        """Return fields of the progress, and leave the mark."""
        with self._lock:
            if not self._mark and self._redis.hlen(self._marks) > _MOST_WRITERS:
                self._redis.unlink(self._marks)  # of processes that are gone; who lives looks again
            self._mark += 2  # one more than a renewal whose answer was lost has written
            with self._redis.pipeline(transaction=True) as asked:
                asked.info("server")
                asked.hset(self._marks, self._writer, self._mark)
                if fields:
                    asked.hmget(progress, fields)
                server, _, *told = asked.execute()
            self._run = str(server.get("run_id", ""))
            self._stands = True
            self._used_until = time.monotonic() + _UNUSED_S
            if self._beating is None or not self._beating.is_alive():
                self._beating = threading.Thread(target=self._beat, name="redis-mark", daemon=True)
                self._beating.start()
        return told[0] if told else []

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_S) and time.monotonic() < self._used_until:
            try:
                with self._lock, suppress(RedisError):  # a server that is away is asked again
                    self._stands = self._stands and self._renewed("", ())
            except (TypeError, ValueError, AttributeError):
                if not self._over.is_set():  # else the client was closed meanwhile
                    raise

    def _renewed(self, progress: str, pairs: Sequence[object]) -> bool:
        said = self._writer, self._mark, self._mark + 1, self._run
        stands = bool(self._redis.eval(_RENEW, 2, self._marks, progress, *said, *pairs))
        self._mark += stands
        return stands

    def settle(self, progress: str, fields: Mapping[str, int]) -> None:
        """Write fields of the progress.

        Raises:
            SinkWentBack: When Redis was put back since the last look, or is another server, or was started
                anew (``REDIS_PUT_BACK``).
        """
        pairs = [part for pair in fields.items() for part in pair]
        with self._lock:
            if not self._mark:
                self._redis.hset(progress, mapping=fields)
                return
            self._stands = self._stands and self._renewed(progress, pairs)
            stands = self._stands
        if not stands:
            raise SinkWentBack(
                "Redis was put back to an earlier moment, or was started anew, while rows were written.",
                code="REDIS_PUT_BACK",
                hint="Nothing has to be done: what it lacks is applied again.",
            )

    def forget(self) -> None:
        """Take all marks away."""
        self._redis.unlink(self._marks)

    def close(self) -> None:
        """Renew the mark no more."""
        self._over.set()
