"""A short look at the values of one table; what goes wrong with it is that table's trouble alone."""

from __future__ import annotations

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from connectors.postgres.session import Session, rows, told_by

__all__ = ["glance"]

_PATIENCE_MS = 3_000


def glance(connection: Session, statement: sql.Composed) -> DictRow | str:
    """Return the one row of a query; or, when there was no time or the database refuses it, why.

    Raises:
        psycopg.Error: When the session has ended.
    """
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {_PATIENCE_MS}")
            (answer,) = rows(connection, statement)
            return answer
    except psycopg.Error as error:
        if connection.closed:
            raise
        return told_by(error)
