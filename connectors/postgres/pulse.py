"""How long the database takes for a small question, asked on a connection that is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress

import psycopg
from psycopg import sql

from connectors.postgres.session import Session, rows_within, told_by
from headrace.model.errors import SourceError

__all__ = ["Pulse"]

_LONGEST_S = 5
"""Who waits for an answer that takes longer learns that it takes so long: somebody may want it to stop."""
_ASKED = sql.SQL("SELECT count(*) FROM pg_publication")


class Pulse:
    """Measures the question alone: to connect takes long where the database is far away, however idle it is.

    Args:
        opened: Opens a connection.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Session]]) -> None:
        self._opened = opened
        self._kept = ExitStack()
        self._connection: Session | None = None

    def __call__(self) -> float:
        """Return how long an answer takes, seconds; of one that takes too long, how long it was waited for.

        Raises:
            SourceError: When the database lets nobody in, or does not answer; the next call connects anew.
        """
        if self._connection is None:
            self._connection = self._kept.enter_context(self._opened())
        began = time.monotonic()
        try:
            rows_within(self._connection, _LONGEST_S * 1000, _ASKED)
        except psycopg.errors.QueryCanceled:
            return time.monotonic() - began
        except psycopg.Error as error:
            self.close()
            raise SourceError(
                f"The database does not answer: {told_by(error)}", code="SOURCE_UNREACHABLE"
            ) from error
        return time.monotonic() - began

    def close(self) -> None:
        """Close the connection."""
        self._connection = None
        with suppress(SourceError):
            self._kept.close()
