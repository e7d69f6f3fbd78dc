"""The connector's sessions, and ours that read as long, that keep the application waiting: they are ended.

A snapshot is one transaction. It keeps a lock upon each table that it has read until all are read, for which
TRUNCATE and ALTER TABLE wait, and behind them every other statement upon the table. A session that is ended
makes the connector begin its snapshot again.
"""

from __future__ import annotations

from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session

__all__ = ["give_way", "yielding"]

_ENDED = """
SELECT pg_terminate_backend(pid) FROM (
    SELECT DISTINCT c.pid FROM pg_locks l
    CROSS JOIN LATERAL unnest(pg_blocking_pids(l.pid)) AS b(pid)
    JOIN pg_stat_activity c ON c.pid = b.pid
    WHERE NOT l.granted AND l.waitstart < clock_timestamp() - interval '1 s'
      AND c.application_name = %s AND c.datname = current_database()
      AND pg_has_role(c.usesysid, 'USAGE')
) AS blocking
"""


def give_way(connection: Session, connector: str) -> int:
    """End the connector's sessions for which another has waited a second; return how many there were.

    None is ended where our role may not see, or end, who is in the way.
    """
    return len(rows_if_granted(connection, _ENDED, connector) or ())


def yielding(connection: Session, connector: str) -> None:
    """Let a session of ours be ended as those of the connector are."""
    connection.execute("SELECT set_config('application_name', %s, false)", (connector,))
