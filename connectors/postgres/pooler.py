"""Whether a connection pooler answers in the place of the server.

A pooler lends one process of the server to many clients in turn, so what we set in it is set for the
application as well. Hence each session begins with a mark of its own among its startup settings, and nothing
is set in it until the process that answers has shown that mark. The process's number proves less: a proxy
that gives each client a process of its own, as providers have before their servers, tells another one, too.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

from connectors.postgres.address import address
from headrace.model.errors import SourceError

__all__ = ["marked", "refuse_pooled", "refused_by_pooler"]

_MARK = "headrace.session"
_REFUSED = re.compile(
    r"unsupported startup parameter"  # PgBouncer, for `options` as well as for a setting within
    r"|command-line options"  # RDS Proxy
)
_SERVER = """
SELECT pg_catalog.host(pg_catalog.inet_server_addr()) AS host, pg_catalog.current_setting('port') AS port,
       pg_catalog.current_database()::text AS dbname
"""


def marked(options: str) -> tuple[str, str]:
    """Return the startup settings with a mark among them that no other session has, and that mark."""
    mark = secrets.token_hex(8)
    return f"{options} -c {_MARK}={mark}".strip(), mark


def refuse_pooled(connection: psycopg.Connection[DictRow], mark: str, known: Mapping[str, str]) -> None:
    """Refuse a connection, and close it, whose process was not started with the mark; nothing is set in it.

    Args:
        connection: In which every statement is a transaction.
        mark: That it was to begin with.
        known: Parameters that lead to the pooler.

    Raises:
        SourceError: ``SOURCE_POOLED``.
    """
    try:
        found = connection.execute("SELECT pg_catalog.current_setting(%s, true) AS mark", (_MARK,)).fetchone()
        if found is not None and found["mark"] == mark:
            return
        error = _pooled(connection, known)
    except BaseException:
        connection.close()
        raise
    connection.close()
    raise error


def refused_by_pooler(
    error: psycopg.OperationalError, known: Mapping[str, str], settings: Mapping[str, Any]
) -> None:
    """Refuse what a pooler has refused, for it takes no startup settings.

    Args:
        error: With which we were not let in.
        known: Parameters that lead there.
        settings: With which the connection was to be opened.

    Raises:
        SourceError: ``SOURCE_POOLED``; nothing when it was something else that did not let us in.
    """
    if not _REFUSED.search(str(error)):
        return
    plain = {**settings, "options": ""}
    try:
        with psycopg.connect(**plain, autocommit=True, row_factory=dict_row) as connection:
            refusal = _pooled(connection, known)
    except psycopg.Error:
        refusal = _refusal("")
    raise refusal from error


def _pooled(connection: psycopg.Connection[DictRow], known: Mapping[str, str]) -> SourceError:
    """Return the refusal, with the address that the server itself tells."""
    (found,) = connection.execute(_SERVER).fetchall()
    beside = found["host"] is None or found["host"].startswith(("127.", "::1"))
    own = {
        "host": connection.info.host if beside else found["host"],
        "port": found["port"],
        "dbname": found["dbname"],
    }
    left = {name: value for name, value in known.items() if name != "hostaddr"}
    return _refusal(address({**left, **own}))


def _refusal(server: str) -> SourceError:
    return SourceError(
        "A connection pooler answers, not Postgres itself. Whatever its mode, sessions through it begin"
        " without the settings that they need, and what is set later may stay for other clients. The"
        " connector could not replicate through it.",
        code="SOURCE_POOLED",
        hint=f"Give the address of the server itself: {server or 'its own host and port'}",
    )
