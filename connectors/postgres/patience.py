"""Statements that need locks: never in the application's way.

Whoever waits for a lock keeps others waiting behind it. So each try waits for a moment only, and then lets go
of everything that it holds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

import psycopg

from connectors.postgres.session import Session, rows, session

__all__ = ["apply"]

_MOMENT_MS = 100
_AUTOVACUUM_MS = 1_500
"""Longer than ``deadlock_timeout``, after which an autovacuum gives way to whoever waits for its table."""
_PAUSE_S = 0.5
_WITHIN_S = 30.0
_AUTOVACUUM = """
SELECT 1 FROM pg_stat_activity WHERE backend_type = 'autovacuum worker' AND datname = current_database()
"""


def apply(
    known: Mapping[str, str],
    work: Callable[[Session], None],
    *,
    within: float = _WITHIN_S,
    whose: str = "SOURCE",
) -> None:
    """Do ``work`` in one transaction, trying again for ``within`` seconds while locks are taken.

    No session waits longer than a tenth of a second because this one waits for a lock; where an autovacuum
    works, which gives way only to who waits for longer, a second and a half.

    Raises:
        SourceError: When a lock could not be had (``SOURCE_LOCKED``), or for any other reason.
    """
    deadline = time.monotonic() + within
    moment = _MOMENT_MS
    while True:
        with session(known, autocommit=False, whose=whose) as connection:
            connection.execute(f"SET LOCAL lock_timeout = {moment}")
            try:
                work(connection)
                return
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                if time.monotonic() > deadline:
                    raise
                connection.rollback()
                moment = _AUTOVACUUM_MS if rows(connection, _AUTOVACUUM) else _MOMENT_MS
        time.sleep(random.uniform(0.5, 1.5) * _PAUSE_S)  # noqa: S311 - only so that two do not keep step
