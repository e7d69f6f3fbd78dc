"""Statements that need locks: never in the application's way.

Whoever waits for a lock keeps others waiting behind it. So each try waits for a moment only, and then lets go
of everything that it holds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Thread

import psycopg

from connectors.base import Wait
from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session, connect, session
from connectors.postgres.waits import blocking_process
from headrace.model.errors import SourceError

__all__ = ["apply"]

_MOMENT_MS = 100
_AUTOVACUUM_MS = 1_500
"""Longer than ``deadlock_timeout``, after which an autovacuum gives way to whoever waits for its table."""
_PAUSE_S = 0.5
_WITHIN_S = 30.0
_LOOK_S = 0.01
"""So often another session looks for whom one of ours waits."""
_AUTOVACUUM = """
SELECT 1 FROM pg_stat_activity WHERE backend_type = 'autovacuum worker' AND datname = current_database()
"""


def apply(
    known: Mapping[str, str], work: Callable[[Session], None], *, whose: str = "SOURCE", makes: bool = False
) -> None:
    """Do ``work`` in one transaction, trying again for half a minute while locks are taken.

    No session waits longer than a tenth of a second because this one waits for a lock; where an autovacuum
    works, which gives way only to who waits for longer, a second and a half.

    Args:
        known: Connection parameters.
        work: What is done.
        whose: The source's name, for hints; ``URL`` while there is none.
        makes: Whether it makes what is ours, so that event triggers may be behind a refusal.

    Raises:
        SourceError: When a lock could not be had (``SOURCE_LOCKED``), or for any other reason.
    """
    began = time.monotonic()
    moment = _MOMENT_MS
    while True:
        last = time.monotonic() - began > _WITHIN_S
        with session(known, autocommit=False, whose=whose, makes=makes) as connection:
            connection.execute(f"SET LOCAL lock_timeout = {moment}")
            with _onlooker(known, connection.info.backend_pid if last else None) as holders:
                try:
                    work(connection)
                    return
                except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
                    if last:
                        raise _locked(time.monotonic() - began, holders) from error
                    connection.rollback()
                    moment = _AUTOVACUUM_MS if rows_if_granted(connection, _AUTOVACUUM) else _MOMENT_MS
        time.sleep(random.uniform(0.5, 1.5) * _PAUSE_S)  # noqa: S311 - only so that two do not keep step


@contextmanager
def _onlooker(known: Mapping[str, str], process: int | None) -> Iterator[list[Wait]]:
    """Yield whom a process of the server waits for meanwhile, seen from another session; None is not seen."""
    found: list[Wait] = []
    over = Event()
    if process is None:
        yield found
        return

    def look(connection: Session) -> None:
        with suppress(psycopg.Error):
            while not over.wait(_LOOK_S):
                found[:] = blocking_process(connection, process) or found

    try:
        connection = connect(known)
    except (psycopg.OperationalError, SourceError):  # there may be no connection left for it
        yield found
        return
    with connection:
        thread = Thread(target=look, args=(connection,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()


def _locked(seconds: float, holders: list[Wait]) -> SourceError:
    """Return the error for a lock that could not be had."""
    if not holders:
        return SourceError(
            f"A table stayed locked by another session for {seconds:.0f} s.",
            code="SOURCE_LOCKED",
            hint="Run the same command again; pg_locks and pg_stat_activity show who holds it.",
        )
    return SourceError(
        f"A table stayed locked for {seconds:.0f} s by {holders[0].who}.",
        code="SOURCE_LOCKED",
        hint=f"{holders[0].ends}  -- then run the same command again",
    )
