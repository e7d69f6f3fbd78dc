"""A backup of Redis, and its restoration, as an operator does them; of some keys only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis import Redis

__all__ = ["backed_up_keys"]


def backed_up_keys(url: str, pattern: str) -> Callable[[], None]:
    """Keep the keys that match a pattern; return what puts them back at once, in place of later ones."""
    redis: Any = Redis.from_url(url)
    kept = {key: redis.dump(key) for key in redis.scan_iter(match=pattern, count=1000)}

    def restore() -> None:
        with redis.pipeline(transaction=True) as at_once:
            for key in redis.scan_iter(match=pattern, count=1000):
                at_once.unlink(key)
            for key, value in kept.items():
                at_once.restore(key, 0, value)
            at_once.execute()

    return restore
