"""Short looks at the values of tables; what goes wrong with one is that table's trouble alone."""

from __future__ import annotations

import time

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from connectors.postgres.courtesy import Courtesy
from connectors.postgres.session import Session, rows, told_by

__all__ = ["Glances"]

_PATIENCE_S = 3.0
_OVER = "the tables before it have taken the time that there is for all"


class Glances:
    """Looks at one table after another.

    Args:
        connection: To the database. A look for which anybody waits is ended.
        at_most_s: How long all of them together may take; None: as long as each takes.
    """

    def __init__(self, connection: Session, at_most_s: float | None = None) -> None:
        self.connection = connection
        self._courtesy = Courtesy(connection)
        self._left_s = at_most_s

    def ask(self, statement: sql.Composed) -> DictRow | str:
        """Return the one row of a query; or, when there was no time or the database refuses it, why.

        Raises:
            psycopg.Error: When the session has ended.
        """
        patience_s = _PATIENCE_S if self._left_s is None else min(_PATIENCE_S, self._left_s)
        if patience_s <= 0:
            return _OVER
        began = time.monotonic()
        try:
            with self.connection.transaction():
                self.connection.execute(f"SET LOCAL statement_timeout = {max(1, int(patience_s * 1000))}")
                with self._courtesy.looking():
                    (answer,) = rows(self.connection, statement)
                return answer
        except psycopg.Error as error:
            if self.connection.closed:
                raise
            return told_by(error)
        finally:
            if self._left_s is not None:
                self._left_s -= time.monotonic() - began
