"""What a hardened server does not let our role ask: named before it is needed, and when it is denied.

Everybody may read most of ``pg_catalog`` until somebody revokes it. So what we and the connector ask there
is listed here. Without what stands in :data:`NEEDED` nothing works, so its lack is a refusal; without what
stands in :data:`USEFUL` less is told, so its lack is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.rows import DictRow, dict_row

from headrace.model.errors import SourceError
from headrace.model.finding import Finding

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["NEEDED", "USEFUL", "refuse_ungranted", "refused_for", "rows_if_granted", "warn_ungranted"]

Connection = psycopg.Connection[DictRow]
NEEDED = (
    # what we read
    "pg_am", "pg_amop", "pg_attrdef", "pg_attribute", "pg_cast", "pg_class", "pg_collation",
    "pg_constraint", "pg_database", "pg_depend", "pg_enum", "pg_index", "pg_inherits", "pg_namespace",
    "pg_opclass", "pg_operator", "pg_publication", "pg_publication_rel", "pg_replication_slots", "pg_roles",
    "pg_type",
    # what we call
    "current_setting", "format_type", "has_database_privilege", "has_function_privilege",
    "has_schema_privilege", "has_table_privilege", "pg_backend_pid", "pg_collation_actual_version",
    "pg_current_snapshot", "pg_current_wal_flush_lsn", "pg_current_wal_lsn", "pg_drop_replication_slot",
    "pg_has_role", "pg_is_in_recovery", "pg_partition_ancestors", "pg_size_bytes", "pg_snapshot_xip",
    "pg_snapshot_xmax", "pg_snapshot_xmin", "pg_stat_get_analyze_count", "pg_stat_get_autoanalyze_count",
    "pg_stat_get_autovacuum_count", "pg_stat_get_dead_tuples", "pg_stat_get_live_tuples",
    "pg_stat_get_tuples_deleted", "pg_stat_get_tuples_inserted", "pg_stat_get_vacuum_count", "pg_table_size",
    "pg_wal_lsn_diff", "pg_walfile_name", "set_config",
    # what is called within, by operators, casts and aggregates, when we set up or look
    "age", "array_eq", "array_remove", "bit", "bool_or", "cideq", "clock_timestamp", "float8", "int2",
    "int24lt", "jsonb_agg", "jsonb_build_object", "jsonb_concat", "jsonb_delete", "md5", "money", "numeric",
    "numeric_mul", "sign", "textanycat", "to_regclass", "xideq",
    # what the connector and its driver ask besides
    "_pg_expandarray", "information_schema", "convert_to", "current_database", "current_schemas", "encode",
    "generate_series", "pg_auth_members", "pg_current_xact_id", "pg_description", "pg_get_expr", "pg_sleep",
    "version",
)  # fmt: skip
"""Tables, views, functions and schemas; those that a version does not have it need not grant."""
_SENDERS = "free WAL senders are not counted, and standbys not named"
_WAITS = "nobody is told for whom the connector waits"
_MONEY = "it is not told whether amounts of money are kept in another unit than they are read"
_BUILT = "what others have built upon our two tables, which keeps them from being removed, is not told"
_TOO_LARGE = "rows that are too large for the connector's driver are not found before a first load ends there"
_DEFAULTS = "default privileges that keep our role from what it makes are not told"
_IN_THE_WAY = "a session of the connector that keeps the application waiting is not ended"
USEFUL: Mapping[str, str] = {
    "aclexplode": _DEFAULTS,
    "pg_blocking_pids": _IN_THE_WAY,
    "pg_cancel_backend": "a look of ours that keeps the application waiting is not ended before its time",
    "pg_column_compression": _TOO_LARGE,
    "pg_column_size": _TOO_LARGE,
    "pg_control_system": "another server at the same address is not told by its number",
    "pg_db_role_setting": _MONEY,
    "pg_default_acl": _DEFAULTS,
    "pg_event_trigger": "event triggers that refuse our statements are not told",
    "pg_identify_object": _BUILT,
    "pg_identify_object_as_address": _BUILT,
    "pg_locks": _IN_THE_WAY,
    "pg_prepared_xacts": _WAITS,
    "pg_settings": _MONEY,
    "pg_stat_activity": f"{_WAITS}, free connections are not counted, {_IN_THE_WAY}",
    "pg_stat_replication": _SENDERS,
    "pg_stat_wal": "how long the log lasts is not told",
    "pg_terminate_backend": _IN_THE_WAY,
}
"""Name → what is missing without it."""

_LACKING = """
SELECT 'FUNCTION' AS kind, n.nspname AS schema, p.proname AS name, p.oid::regprocedure::text AS exact
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = ANY(%(schemas)s::name[]) AND p.proname = ANY(%(names)s::name[])
  AND NOT has_function_privilege(p.oid, 'EXECUTE')
UNION ALL
SELECT 'TABLE', n.nspname, c.relname, NULL
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY(%(schemas)s::name[]) AND c.relname = ANY(%(names)s::name[])
  AND NOT has_table_privilege(c.oid, 'SELECT')
UNION ALL
SELECT 'SCHEMA', NULL, n.nspname, NULL FROM pg_namespace n
WHERE n.nspname = ANY(%(schemas)s::name[]) AND n.nspname = ANY(%(names)s::name[])
  AND NOT has_schema_privilege(n.oid, 'USAGE')
"""
_TO_ASK = tuple(
    {"kind": kind, "schema": "pg_catalog", "name": exact.partition("(")[0], "exact": exact}
    for kind, exact in (
        *(("FUNCTION", f"has_{what}_privilege(oid, text)") for what in ("function", "table", "schema")),
        ("FUNCTION", "hashname(name)"),  # to look a name up among many
        ("FUNCTION", "nameeq(name, name)"),
        ("FUNCTION", "oideq(oid, oid)"),
        *(("TABLE", name) for name in ("pg_class", "pg_namespace", "pg_proc")),
    )
)
"""What it takes to ask what we lack, casts aside."""
_RIGHT = {"FUNCTION": "EXECUTE", "TABLE": "SELECT", "SCHEMA": "USAGE"}
_SCHEMAS = ["pg_catalog", "information_schema"]
_BARE = "-c role=none -c search_path=pg_catalog"
_TIMEOUT_S = 10


def refuse_ungranted(connection: Connection) -> None:
    """Refuse a server that denies our role what is needed (``SOURCE_CATALOGUE_RIGHT``)."""
    if lacking := _lacking(connection, NEEDED):
        raise _refusal(connection, lacking)


def warn_ungranted(connection: Connection) -> Iterator[Finding]:
    """Yield what is not told, or not done, for want of a right that one can do without."""
    if lacking := _lacking(connection, USEFUL):
        missing = "; ".join(dict.fromkeys(USEFUL[row["name"]] for row in lacking))
        message = f"{_may_not(connection, lacking)}, so {missing}."
        yield Finding.warning("SOURCE_CATALOGUE_RIGHT", message, _granting(connection, lacking))


def refused_for(known: Mapping[str, str], error: psycopg.Error) -> SourceError | None:
    """Return the refusal that names all that our role lacks of the catalogue, once a statement was denied.

    What the server's words name is looked for as well, in whatever language they are. It is asked in a
    session of its own, in which nothing is set: to set something may be what is denied.

    Args:
        known: Parameters of the connection.
        error: Of the statement.

    Returns:
        None when nothing of the catalogue is lacking, or nobody lets us in to ask.
    """
    told = _words(error)
    parameters = {
        "connect_timeout": str(_TIMEOUT_S),
        "application_name": "headrace",
        **known,
        "options": _BARE,
    }
    try:
        with psycopg.connect(**parameters, autocommit=True, row_factory=dict_row) as connection:  # type: ignore[arg-type]
            try:
                lacking = _lacking(connection, [*NEEDED, *told])
            except psycopg.errors.InsufficientPrivilege as denied:
                told = _words(denied)
                lacking = [row for row in _TO_ASK if row["name"] in told] or _TO_ASK
            return _refusal(connection, lacking) if lacking else None
    except psycopg.Error:
        return None


def rows_if_granted(connection: Connection, statement: LiteralString, *values: Any) -> list[DictRow] | None:
    """Return all rows of a query; None when our role may not ask, which :func:`warn_ungranted` tells.

    A transaction that is under way goes on either way.
    """
    idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    try:
        with nullcontext() if connection.autocommit and idle else connection.transaction():
            return connection.execute(statement, values or None).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        return None


def _words(error: psycopg.Error) -> list[str]:
    return re.findall(r"\w+", error.diag.message_primary or str(error))


def _lacking(connection: Connection, names: Collection[str]) -> Sequence[Mapping[str, str]]:
    return connection.execute(_LACKING, {"schemas": _SCHEMAS, "names": list(names)}).fetchall()


def _refusal(connection: Connection, lacking: Sequence[Mapping[str, str]]) -> SourceError:
    return SourceError(
        f"{_may_not(connection, lacking)}, without which nothing works.",
        code="SOURCE_CATALOGUE_RIGHT",
        hint=_granting(connection, lacking),
    )


def _may_not(connection: Connection, lacking: Sequence[Mapping[str, str]]) -> str:
    named = (f"{row['name']}()" if row["kind"] == "FUNCTION" else row["name"] for row in lacking)
    return f"The role {connection.info.user} may not use {', '.join(sorted(set(named)))}"


def _granting(connection: Connection, lacking: Sequence[Mapping[str, str]]) -> str:
    """Return the statements after which nothing of it is lacking: one for each kind of right."""
    role = sql.Identifier(connection.info.user).as_string()
    granting = []
    for kind, right in _RIGHT.items():
        if named := sorted({_whole(row) for row in lacking if row["kind"] == kind}):
            granting.append(f"GRANT {right} ON {kind} {', '.join(named)} TO {role};")
    database = sql.Identifier(connection.info.dbname).as_string()
    return f"{' '.join(granting)}  -- as a superuser, in database {database}"


def _whole(row: Mapping[str, str]) -> str:
    """Return the name with its schema, which Postgres leaves out of a function's where it sees that."""
    exact, home = row["exact"] or row["name"], f"{row['schema']}." if row["schema"] else ""
    return exact if exact.startswith(home) else f"{home}{exact}"
