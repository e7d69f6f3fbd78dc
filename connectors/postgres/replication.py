"""Whether our role may replicate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psycopg

from connectors.postgres.session import Session, quoted, rows
from connectors.postgres.way_in import refused_with
from headrace.model.finding import Finding

__all__ = ["check_replication"]

_TIMEOUT_S = 10
_NO_SENDER = "max_wal_senders"
_OF_PROVIDER = "rds_replication"
_ROLE = """
SELECT r.rolname::text AS role, r.rolreplication OR r.rolsuper AS may,
       (SELECT NOT pg_has_role(r.oid, p.oid, 'MEMBER') FROM pg_roles p WHERE p.rolname = %s) AS joins
FROM pg_roles r WHERE r.rolname = session_user
"""


def check_replication(connection: Session, known: Mapping[str, str]) -> Iterator[Finding]:
    """Yield whether our role may replicate.

    Who has the attribute may. Providers have other ways: on RDS members of ``rds_replication`` may, while a
    role of that name elsewhere means nothing. So a role without the attribute tries: it opens a connection
    for replication and asks who answers there. The connector needs the right for nothing else. It takes a
    sender for a moment, and changes nothing; a slot, even a temporary one, waits for open transactions.

    Args:
        connection: To the database.
        known: The parameters it was made from.
    """
    (told,) = rows(connection, _ROLE, _OF_PROVIDER)
    why = "" if told["may"] else _refused(known)
    if _NO_SENDER in why:  # which SOURCE_SENDERS tells, and keeps all else from being tried
        return
    if not why:
        yield Finding.ok("SOURCE_REPLICATION_RIGHT", f"the role {told['role']} may replicate")
        return
    role = quoted(told["role"])
    yield Finding.error(
        "SOURCE_REPLICATION_RIGHT",
        f"The role {told['role']} may not replicate: {why}.",
        f"GRANT {_OF_PROVIDER} TO {role};" if told["joins"] else f"ALTER ROLE {role} REPLICATION;",
    )


def _refused(known: Mapping[str, str]) -> str:
    """Return why nobody is let in for replication; empty when our role is."""
    parameters = {"connect_timeout": str(_TIMEOUT_S), "application_name": "headrace", **known}
    try:
        with psycopg.connect(**parameters, replication="database", autocommit=True) as connection:  # type: ignore[arg-type]
            connection.execute(b"IDENTIFY_SYSTEM")
    except psycopg.Error as error:
        return refused_with(error)
    return ""
