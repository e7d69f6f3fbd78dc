"""Who keeps the connector from its slot: another that reads from it, a full server, a right that is gone."""

from __future__ import annotations

from psycopg.rows import DictRow

from connectors.base import Wait
from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session, quoted, rows

__all__ = ["barred"]

_OURS = "Debezium Streaming"
"""How the connector's replication session calls itself; it has our role, which sees that."""
_HOLDER = """
SELECT a.pid, a.usename::text AS role, nullif(a.application_name, '') AS name,
       host(a.client_addr) AS host, extract(epoch FROM clock_timestamp() - a.backend_start)::int AS seconds
FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND a.application_name IS DISTINCT FROM %s
"""
_SENDERS = """
SELECT a.pid, a.usename::text AS role, nullif(a.application_name, '') AS name,
       host(a.client_addr) AS host, extract(epoch FROM clock_timestamp() - a.backend_start)::int AS seconds
FROM pg_stat_replication r JOIN pg_stat_activity a USING (pid) ORDER BY a.backend_start DESC NULLS LAST, a.pid
"""
_ROLE = """
SELECT current_user::text AS role, current_setting('max_wal_senders')::int AS senders,
       (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)
       OR EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname IN ('rds_replication', 'azure_pg_admin')
                  AND pg_has_role(current_user, r.oid, 'MEMBER')) AS may_replicate
"""
_NAMED = 3


def barred(connection: Session, slot: str, *, active: bool) -> Wait | None:
    """Return who keeps the connector from its slot, and what ends that; None when nobody is seen to.

    Args:
        connection: To the slot's database.
        slot: The slot's name.
        active: Whether somebody reads from it.
    """
    if active:
        found = rows_if_granted(connection, _HOLDER, slot, _OURS)
        return Wait(f"{_told(found[0])} reads from it", _ended(found[0])) if found else None
    (own,) = rows(connection, _ROLE)
    if not own["may_replicate"]:
        return Wait(
            f"the role {own['role']} may not replicate", f"ALTER ROLE {quoted(own['role'])} REPLICATION;"
        )
    others = rows_if_granted(connection, _SENDERS)
    if others is None or len(others) < own["senders"]:
        return None
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return Wait(
        f"all connections for replication are taken (max_wal_senders = {own['senders']}), by"
        f" {', '.join(map(_told, others[:_NAMED]))}{more}",
        f"ALTER SYSTEM SET max_wal_senders = {len(others) + 4};  -- then restart Postgres"
        + (f"; or {_ended(others[0])}" if others else ""),
    )


def _told(one: DictRow) -> str:
    """Return a session in words; of another role's we may not see all."""
    seen = (
        one["name"],
        one["host"] and f"from {one['host']}",
        one["seconds"] is not None and f"for {one['seconds']} s",
    )
    said = ", ".join(str(part) for part in seen if part)
    return f"process {one['pid']} of {one['role'] or 'the server'}" + (f" ({said})" if said else "")


def _ended(one: DictRow) -> str:
    return f"SELECT pg_terminate_backend({one['pid']});"
