"""For whom the connector waits: a slot for transactions that have written, a snapshot for locks of others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from psycopg.rows import DictRow

from connectors.base import Wait
from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session, quoted
from headrace.model.pasted import remark

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["blocking", "blocking_process", "open_transactions"]

# Everybody may see the locks; the age of another role's transaction only who may read all statistics. Each
# savepoint that has written holds a lock of its own.
_OPEN = """
SELECT DISTINCT ON (l.pid) l.pid, l.virtualtransaction AS id, coalesce(a.datname::text, '-') AS database,
       coalesce(a.usename::text, a.backend_type, 'the server') AS role,
       extract(epoch FROM clock_timestamp() - a.xact_start)::int AS seconds
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
ORDER BY l.pid
"""
_PREPARED = """
SELECT gid, database::text AS database, owner::text AS role, quote_literal(gid) AS literal,
       extract(epoch FROM clock_timestamp() - prepared)::int AS seconds
FROM pg_prepared_xacts ORDER BY prepared
"""
# The walsender that makes a slot is known by it; other sessions have the connector's name.
_OF_CONNECTOR = """
WITH ours AS (
    SELECT active_pid AS pid FROM pg_replication_slots
    WHERE slot_name = %s AND database = current_database()
  UNION SELECT pid FROM pg_stat_activity WHERE application_name = %s
)"""
_OF_PROCESS = """
WITH ours AS (SELECT %s::int AS pid)"""
_BLOCKING = """
, holding AS (SELECT DISTINCT b.pid FROM ours, unnest(pg_blocking_pids(ours.pid)) AS b(pid))
SELECT h.pid, coalesce(a.datname::text, '-') AS database,
       coalesce(a.usename::text, a.backend_type, 'the server') AS role,
       extract(epoch FROM clock_timestamp() - a.xact_start)::int AS seconds
FROM holding h LEFT JOIN pg_stat_activity a ON a.pid = h.pid
WHERE h.pid NOT IN (SELECT pid FROM ours WHERE pid IS NOT NULL)
ORDER BY seconds DESC NULLS LAST, h.pid
"""
_LOOK_AGAIN_S = 1.0


def open_transactions(connection: Session, *, longer_than_s: int) -> tuple[Wait, ...]:
    """Return the transactions of any database for which a slot would wait, the prepared first.

    Args:
        connection: To any database of the server; each statement a transaction of its own.
        longer_than_s: Leave out those that are younger; of those that do not tell their age, those that end
            within a second.
    """
    prepared = [row for row in _seen(connection, _PREPARED) if row["seconds"] >= longer_than_s]
    found = _seen(connection, _OPEN)
    if any(row["seconds"] is None for row in found):
        time.sleep(_LOOK_AGAIN_S)
        still = {row["id"] for row in _seen(connection, _OPEN)}
        found = [row for row in found if row["seconds"] is not None or row["id"] in still]
    stay = [row for row in found if row["seconds"] is None or row["seconds"] >= longer_than_s]
    return (*_prepared(prepared), *_sessions(stay))


def blocking(connection: Session, connector: str) -> tuple[Wait, ...]:
    """Return for whom the connector's sessions wait just now: the slot that is being made, or a snapshot.

    Args:
        connection: To any database of the server.
        connector: The name of the connector, and of its slot.
    """
    return _holding(connection, _seen(connection, _OF_CONNECTOR + _BLOCKING, connector, connector))


def blocking_process(connection: Session, process: int) -> tuple[Wait, ...]:
    """Return for whom a process of the server waits just now.

    Args:
        connection: To any database of the server.
        process: Which; not that of the connection.
    """
    return _holding(connection, _seen(connection, _OF_PROCESS + _BLOCKING, process))


def _holding(connection: Session, found: Sequence[DictRow]) -> tuple[Wait, ...]:
    # Postgres tells a prepared transaction, which no process holds, as process 0; not which one.
    prepared = _seen(connection, _PREPARED) if any(row["pid"] == 0 for row in found) else []
    return (*_prepared(prepared), *_sessions(row for row in found if row["pid"]))


def _seen(connection: Session, statement: LiteralString, *values: object) -> list[DictRow]:
    """Return the rows of a query; none where our role may not see who waits."""
    return rows_if_granted(connection, statement, *values) or []


def _prepared(found: Iterable[DictRow]) -> Iterable[Wait]:
    return (
        Wait(
            f"the prepared transaction {row['literal']} of {row['role']} in database {row['database']},"
            f" open for {row['seconds']} s",
            f"ROLLBACK PREPARED {row['literal']};"
            f"  -- or COMMIT, in database {remark(quoted(row['database']))}",
        )
        for row in found
    )


def _sessions(found: Iterable[DictRow]) -> Iterable[Wait]:
    return (
        Wait(
            f"process {row['pid']} of {row['role']} in database {row['database']}, whose transaction is open"
            + (f" for {row['seconds']} s" if row["seconds"] is not None else ""),
            f"SELECT pg_terminate_backend({row['pid']});",
        )
        for row in found
    )
