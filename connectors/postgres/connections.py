"""Whether there are connections enough: for the connector, the watcher, the sinks' lookups and commands."""

from __future__ import annotations

from collections.abc import Iterator

from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session, quoted
from headrace.model.finding import Finding

__all__ = ["check_connections"]

_NEEDED = 5
"""The connector's for its questions and its heartbeat, the watcher's, a lookup's and a command's.
Each reader of the first snapshot has one more."""

_LIMITS = """
SELECT r.rolname::text AS role, r.rolconnlimit AS of_role, r.rolsuper AS super,
       d.datname::text AS database, d.datconnlimit AS of_database,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true)::int, 0) AS of_server,
       count(*) FILTER (WHERE a.usename = r.rolname AND a.pid <> pg_backend_pid()) AS by_role,
       count(*) FILTER (WHERE a.datname = d.datname AND a.pid <> pg_backend_pid()) AS by_database,
       count(*) FILTER (WHERE a.pid <> pg_backend_pid()) AS by_all
FROM pg_roles r, pg_database d, pg_stat_activity a
WHERE r.rolname = current_user AND d.datname = current_database()
  AND a.datid IS NOT NULL AND a.usesysid IS NOT NULL
GROUP BY 1, 2, 3, 4, 5
"""


def check_connections(connection: Session, *, readers: int = 1) -> Iterator[Finding]:
    """Yield which limit leaves too few connections: the last ones are the application's.

    Nothing is told where our role may not see which are taken.

    Args:
        connection: To the database.
        readers: How many read the first snapshot side by side.
    """
    needed = _NEEDED + readers
    counted = rows_if_granted(connection, _LIMITS)
    if counted is None:
        return
    (found,) = counted
    role, database = quoted(found["role"]), quoted(found["database"])
    limits = (
        (f"of the role {role}", -1 if found["super"] else found["of_role"], found["by_role"],
         f"ALTER ROLE {role} CONNECTION LIMIT {{}};"),
        (f"of the database {database}", -1 if found["super"] else found["of_database"], found["by_database"],
         f"ALTER DATABASE {database} CONNECTION LIMIT {{}};"),
        ("of the server", found["of_server"], found["by_all"],
         "ALTER SYSTEM SET max_connections = {};  -- then restart Postgres"),
    )  # fmt: skip
    for whose, limit, used, mend in limits:
        if limit < 0 or limit - used >= needed:
            continue
        yield Finding.error(
            "SOURCE_CONNECTIONS",
            f"A source takes up to {needed} connections; the limit {whose} is {limit}, and {used} are taken.",
            mend.format(used + needed + (4 if whose == "of the server" else 0)),
        )
