"""For whom a slot that is being made waits: transactions that have written, in any database of the server."""

from __future__ import annotations

import time

from connectors.base import Wait
from connectors.postgres.session import Session, quoted, rows

__all__ = ["open_transactions"]

# Everybody may see the locks; the age of another role's transaction only who may read all statistics.
_OPEN = """
SELECT l.pid, l.transactionid::text AS id, a.datname::text AS database, a.usename::text AS role,
       extract(epoch FROM clock_timestamp() - a.xact_start)::int AS seconds
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
ORDER BY a.xact_start NULLS LAST, l.pid
"""
_PREPARED = """
SELECT gid, database::text AS database, owner::text AS role, quote_literal(gid) AS literal,
       extract(epoch FROM clock_timestamp() - prepared)::int AS seconds
FROM pg_prepared_xacts ORDER BY prepared
"""
_LOOK_AGAIN_S = 1.0


def open_transactions(connection: Session, *, longer_than_s: int = 0) -> tuple[Wait, ...]:
    """Return the transactions that have written and are open, the prepared and the oldest first.

    Args:
        connection: To any database of the server; each statement a transaction of its own.
        longer_than_s: Leave out those that are younger; of those that do not tell their age, those that end
            within a second.
    """
    prepared = [
        Wait(
            f"the prepared transaction {row['literal']} of {row['role']} in database {row['database']},"
            f" open for {row['seconds']} s",
            f"ROLLBACK PREPARED {row['literal']};  -- or COMMIT, in database {quoted(row['database'])}",
        )
        for row in rows(connection, _PREPARED)
        if row["seconds"] >= longer_than_s
    ]
    found = rows(connection, _OPEN)
    if longer_than_s and any(row["seconds"] is None for row in found):
        time.sleep(_LOOK_AGAIN_S)
        still = {row["id"] for row in rows(connection, _OPEN)}
        found = [row for row in found if row["seconds"] is not None or row["id"] in still]
    return (
        *prepared,
        *(
            Wait(
                f"process {row['pid']} of {row['role']} in database {row['database']}, whose transaction is"
                + (f" open for {row['seconds']} s" if row["seconds"] is not None else " open"),
                f"SELECT pg_terminate_backend({row['pid']});",
            )
            for row in found
            if row["seconds"] is None or row["seconds"] >= longer_than_s
        ),
    )
