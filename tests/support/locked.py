"""A Redis that lets nobody in as our user; who is in stays in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from redis import Redis

from tests.support.stack import RunningStack

__all__ = ["redis_locked"]


@contextmanager
def redis_locked(stack: RunningStack) -> Iterator[None]:
    """Have Redis let no newcomer in while the block runs."""
    user = urlsplit(stack.endpoints.redis_url).username or ""
    with Redis.from_url(stack.redis_admin_url) as admin:
        admin.execute_command("ACL", "SETUSER", user, "off")
        try:
            yield
        finally:
            admin.execute_command("ACL", "SETUSER", user, "on")
