"""Long looks of ours at tables of the application: ended as soon as anybody waits for one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread

import psycopg

from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session, connect
from headrace.model.errors import SourceError

__all__ = ["Courtesy"]

_LOOK_S = 0.1
_IDLE_S = 1.0
"""So long the second session stays when nothing is looked at: sessions are few."""
_ENDED = """
SELECT pg_cancel_backend(%s) WHERE EXISTS (
    SELECT FROM pg_locks l WHERE NOT l.granted AND %s = ANY (pg_blocking_pids(l.pid)))
"""


class Courtesy:
    """Cancels a statement of one session for which another session waits.

    Whoever waits for a lock keeps all others waiting that want the table after it. A second session looks ten
    times a second, from a long look on and until some time after it. Where the database has no room for it,
    the looks are bounded by their own time alone.

    Args:
        connection: The session whose statements are cancelled.
    """

    def __init__(self, connection: Session) -> None:
        self._connection = connection
        self._process = connection.info.backend_pid
        self._looking, self._turn = Event(), Lock()
        self._thread: Thread | None = None

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Have what is executed here cancelled when others wait for it."""
        with self._turn:
            self._looking.set()
            if self._thread is None:
                self._thread = Thread(target=self._watch, name="courtesy", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._turn:  # no order to cancel is under way, which would fall upon a later statement
                self._looking.clear()

    def _watch(self) -> None:
        known = {**self._connection.info.get_parameters(), "password": self._connection.info.password}
        with suppress(psycopg.Error, SourceError), connect(known) as onlooker:
            while not self._connection.closed:
                looks = self._looking.wait(_IDLE_S)
                with self._turn:
                    if self._looking.is_set():
                        rows_if_granted(onlooker, _ENDED, self._process, self._process)
                    elif not looks:
                        self._thread = None
                        return
                time.sleep(_LOOK_S)
