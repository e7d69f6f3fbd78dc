"""What a server, its settings and our role say, asked before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from psycopg.rows import DictRow

from connectors.postgres.address import CUT
from connectors.postgres.connections import check_connections
from connectors.postgres.event_triggers import check_event_triggers
from connectors.postgres.granted import rows_if_granted, warn_ungranted
from connectors.postgres.logins import check_login
from connectors.postgres.replication import check_replication
from connectors.postgres.rights import check_defaults
from connectors.postgres.session import IN_UTF8, Session, quoted, rows
from connectors.postgres.synchronous import check_standby_slots, check_synchronous
from connectors.postgres.waits import open_transactions
from headrace.model.finding import Finding
from headrace.model.pasted import word

__all__ = ["check_anew", "check_server"]

_MISREAD = "+%?$/"
"""Characters that the connector, or the driver within, takes apart in the name of a database."""
_LONG_S = 10
_HOURS_OF_LOG = 4.0

_SERVER = """
SELECT current_setting('server_version') AS version_text,
       current_setting('wal_level') AS wal_level, pg_is_in_recovery() AS standby,
       current_setting('max_replication_slots')::int AS slots,
       (SELECT count(*) FROM pg_replication_slots) AS slots_used,
       current_setting('max_wal_senders')::int AS senders,
       CASE current_setting('max_slot_wal_keep_size') WHEN '-1' THEN -1
           ELSE pg_size_bytes(current_setting('max_slot_wal_keep_size')) >> 20 END AS keep_mb,
       current_setting('server_encoding') AS encoding,
       current_user::text AS role, current_database()::text AS database,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       (SELECT n.nspowner::regrole::text FROM pg_namespace n WHERE n.nspname = 'headrace' AND NOT
            (has_schema_privilege(n.oid, 'CREATE') AND has_schema_privilege(n.oid, 'USAGE'))) AS shut_by,
       extract(epoch FROM current_setting('idle_replication_slot_timeout', true)::interval)::int AS idle_s,
       ARRAY(SELECT pubname::text FROM pg_publication WHERE puballtables ORDER BY 1) AS of_all,
       session_user::text AS login,
       (SELECT rolvaliduntil::timestamptz(0)::text FROM pg_roles
        WHERE rolname = session_user AND rolvaliduntil < 'infinity') AS login_ends
"""
_SENDERS = "SELECT count(*) AS used FROM pg_stat_replication"
_RATE = """
SELECT (wal_bytes / greatest(extract(epoch FROM clock_timestamp() - stats_reset), 1))::float8 AS bytes
FROM pg_stat_wal
"""


def check_server(connection: Session, known: Mapping[str, str], *, readers: int = 1) -> Iterator[Finding]:
    """Yield what the server's version, settings and our role's rights say.

    Args:
        connection: To the database.
        known: The parameters it was made from.
        readers: How many are to read the first snapshot side by side.
    """
    (server,) = rows(connection, _SERVER)
    database = server["database"]
    yield Finding.ok("SOURCE_VERSION", f"Postgres {server['version_text']}")
    yield from _standby(server)
    if server["encoding"] == "SQL_ASCII":
        yield Finding.error(
            "SOURCE_ENCODING",
            f"The database {database} is in SQL_ASCII: nothing says what its bytes beyond ASCII mean.",
            IN_UTF8,
        )
    if odd := "".join(sorted(set(database) & set(_MISREAD))):
        yield Finding.error(
            "SOURCE_DATABASE_NAME",
            f"The name of the database {database} holds “{odd}”, which the connector's driver reads"
            " otherwise: it would follow another database.",
            f"ALTER DATABASE {quoted(database)} RENAME TO …;  -- without {odd}",
        )
    if database != database.strip(CUT):
        yield Finding.error(
            "SOURCE_DATABASE_NAME",
            f"The name of the database {database!r} begins or ends with blanks, which Connect cuts off: it"
            " would follow another database.",
            f'ALTER DATABASE {quoted(database)} RENAME TO "…";',
        )
    yield _wal_level(server)
    yield _free(
        "SOURCE_SLOTS", "replication slot", "max_replication_slots", server["slots"], server["slots_used"]
    )
    yield from check_connections(connection, readers=readers)
    if senders := rows_if_granted(connection, _SENDERS):
        yield _free("SOURCE_SENDERS", "WAL sender", "max_wal_senders", server["senders"], senders[0]["used"])
    yield from check_synchronous(connection)
    yield from check_standby_slots(connection)
    yield from warn_ungranted(connection)
    yield from _rights(connection, known, server)
    if server["of_all"]:
        yield Finding.warning(
            "SOURCE_PUBLISHED_ALL",
            f"{', '.join(server['of_all'])} publishes all tables, so also our two small ones in the schema"
            " headrace: a subscription to it stops until its database has them, too.",
            f"pg_dump --schema-only --schema=headrace {word(database)} | psql …  -- into each database that"
            " subscribes, once the source is added",
        )
    yield from _log(connection, server)


def check_anew(connection: Session, known: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what keeps us from removing what is ours in the database and making it anew."""
    (server,) = rows(connection, _SERVER)
    yield from _standby(server)
    yield _wal_level(server)
    yield from _rights(connection, known, server, anew=True)


def _standby(server: DictRow) -> Iterator[Finding]:
    if server["standby"]:
        yield Finding.error(
            "SOURCE_STANDBY",
            "This server is a standby and takes no writes.",
            "Give the address of the primary.",
        )


def _wal_level(server: DictRow) -> Finding:
    if server["wal_level"] == "logical":
        return Finding.ok("SOURCE_WAL_LEVEL", "wal_level is logical")
    return Finding.error(
        "SOURCE_WAL_LEVEL",
        f"wal_level is {server['wal_level']}, but must be logical.",
        "ALTER SYSTEM SET wal_level = 'logical';  -- then restart Postgres",
    )


def _rights(
    connection: Session, known: Mapping[str, str], server: DictRow, *, anew: bool = False
) -> Iterator[Finding]:
    """Yield what our role may not do, and what others let nobody do."""
    role, database = server["role"], server["database"]
    yield from check_replication(connection, known)
    yield from check_login(connection, known)
    if server["login_ends"]:
        yield Finding.warning(
            "SOURCE_LOGIN_ENDS",
            f"The password of the role {server['login']} is valid until {server['login_ends']}: then the"
            " connector and we get in no more.",
            f"ALTER ROLE {quoted(server['login'])} VALID UNTIL 'infinity';",
        )
    if not server["may_create"]:
        yield Finding.error(
            "SOURCE_CREATE_RIGHT",
            f"The role {role} may not create a schema and a publication in {database}.",
            f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(role)};",
        )
    elif withheld := list(check_defaults(connection, anew=anew)):
        yield from withheld
    elif not (server["standby"] or server["shut_by"]):
        yield from check_event_triggers(connection, anew=anew)
    if server["shut_by"]:
        yield Finding.error(
            "SOURCE_SCHEMA_RIGHT",
            f"The schema for our tables, headrace, belongs to {server['shut_by']}; {role} may not use it.",
            f"GRANT USAGE, CREATE ON SCHEMA headrace TO {quoted(role)};",
        )


def _log(connection: Session, server: DictRow) -> Iterator[Finding]:
    """Yield what the server does with its log while a connector is away, and for whom a slot would wait."""
    if server["keep_mb"] == -1:
        yield Finding.warning(
            "SOURCE_WAL_UNBOUNDED",
            "max_slot_wal_keep_size is unlimited: while the connector is down, WAL can fill the disk.",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();"
            "  -- beyond it the slot is lost and a resnapshot is needed",
        )
    elif (rate := _rate(connection)) and (hours := _hours(server["keep_mb"], rate)) < _HOURS_OF_LOG:
        yield Finding.warning(
            "SOURCE_WAL_SHORT",
            f"max_slot_wal_keep_size is {server['keep_mb']} MB: as fast as this server has written its log so"
            f" far, the slot is lost when the connector is away for {hours:.1f} hours.",
            f"ALTER SYSTEM SET max_slot_wal_keep_size = '{_room(rate)}MB'; SELECT pg_reload_conf();",
        )
    if server["idle_s"]:
        yield Finding.warning(
            "SOURCE_SLOT_IDLE",
            f"idle_replication_slot_timeout is {server['idle_s']} s: when the connector is paused or down for"
            " longer, its slot is lost, and everything has to be read anew.",
            "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
        )
    for wait in open_transactions(connection, longer_than_s=_LONG_S):
        yield Finding.warning(
            "SOURCE_LONG_TRANSACTION", f"Creating the slot would wait for {wait.who}.", wait.ends
        )


def _rate(connection: Session) -> float:
    """Return how many bytes of log a second the server has written so far; 0 when it does not tell."""
    told = rows_if_granted(connection, _RATE)
    return float(told[0]["bytes"] or 0.0) if told else 0.0


def _hours(keep_mb: int, rate: float) -> float:
    """Return how long a connector may be away, at so many bytes of log a second."""
    return keep_mb * (1 << 20) / (rate * 3600)


def _room(rate: float) -> int:
    """Return so many MB as a day writes."""
    return int(rate * 86_400) >> 20


def _free(code: str, thing: str, setting: str, total: int, used: int) -> Finding:
    if total - used < 1:
        return Finding.error(
            code,
            f"No {thing} is free: {used} of {total} are taken.",
            f"ALTER SYSTEM SET {setting} = {used + 4};  -- then restart Postgres",
        )
    return Finding.ok(code, f"{total - used} of {total} {thing}s are free")
