"""What the connector needs in the database: two small tables, a publication, a slot."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from typing import Any

import psycopg
from psycopg import sql

from connectors.base import Capture, Hold
from connectors.postgres import publication, specimens
from connectors.postgres.barred import barred
from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session, define, identifier, rows
from connectors.postgres.synchronous import check_synchronous
from connectors.postgres.waits import blocking
from headrace.model.errors import SourceError
from headrace.model.schema import TableId

__all__ = [
    "create",
    "drop_slot",
    "forget_publication",
    "forget_schema",
    "forget_tables",
    "hold",
    "insert_signal",
    "leftovers",
    "make",
    "refuse_elsewhere",
    "refuse_taken",
    "tidy",
]

_SCHEMA = sql.Identifier("headrace")
_RELEASE_S = 15.0

_HOLD = """
SELECT to_jsonb(s) ->> 'invalidation_reason' AS reason, s.active, s.wal_status,
       pg_wal_lsn_diff(s.confirmed_flush_lsn, '0/0')::bigint AS confirmed,
       pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint AS held,
       pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn)::bigint AS unconfirmed,
       s.safe_wal_size::bigint AS spare, s.database::text AS database, current_database()::text AS ours
FROM pg_replication_slots s WHERE s.slot_name = %s
"""
_SLOT = """
SELECT s.database::text AS database, s.active_pid AS holder,
       s.database IS NOT DISTINCT FROM current_database() AS ours
FROM pg_replication_slots s WHERE s.slot_name = %s
"""
_HOLDER = """
SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s AND database = current_database()
"""
_DROP = """
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_name = %s AND database = current_database() AND NOT active
"""
_PUBLISHED = """
SELECT n.nspname::text AS schema, c.relname::text AS name
FROM pg_publication p JOIN pg_publication_rel m ON m.prpubid = p.oid
JOIN pg_class c ON c.oid = m.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = %s AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AND p.pubviaroot
  AND num_nulls(to_jsonb(m) ->> 'prqual', to_jsonb(m) ->> 'prattrs') = 2
"""
_NOW = """
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
       pg_is_in_recovery() AS standby, current_database()::text AS database,
       (SELECT system_identifier::text FROM pg_control_system()) AS system
"""
_ELSEWHERE = """
SELECT a.datname::text AS database FROM pg_stat_activity a
WHERE a.application_name = %s AND a.datname <> current_database() LIMIT 1
"""
_NOW_ALONE = """
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
       pg_is_in_recovery() AS standby, current_database()::text AS database, NULL AS system
"""
_THERE = "SELECT 1 FROM pg_namespace WHERE nspname = 'headrace'"
_EMPTY = """
SELECT 1 FROM pg_namespace n WHERE n.nspname = 'headrace' AND pg_has_role(n.nspowner, 'USAGE')
  AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.deptype = 'n'
                  AND d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid)
"""


def refuse_taken(connection: Session, capture: Capture) -> None:
    """Refuse the name of a slot that there is already (``SOURCE_SLOT_TAKEN``).

    Slots are those of the whole server. One of another database may be that of another installation, so that
    nobody is told how to drop it.
    """
    name = capture.connector
    for slot in rows(connection, _SLOT, name):
        used = f"which process {slot['holder']} uses" if slot["holder"] else "which nobody uses now"
        hint = "Choose another source name"
        if slot["ours"]:
            hint += f"; or, when nothing uses the slot any more: SELECT pg_drop_replication_slot('{name}');"
        raise SourceError(
            f"The server already has a replication slot {name} of {_of(slot['database'])}, {used}.",
            code="SOURCE_SLOT_TAKEN",
            hint=hint if slot["ours"] else f"{hint}.",
        )


def _of(database: str | None) -> str:
    """Return whose slot it is; a physical one is of no database."""
    return f"database {database}" if database else "no database"


def create(connection: Session, capture: Capture) -> None:
    """Create schema, tables and publication inside the caller's transaction; idempotent.

    Raises:
        SourceError: When a slot of that name exists already (``SOURCE_SLOT_TAKEN``).
    """
    refuse_taken(connection, capture)
    make(connection, capture)


def make(connection: Session, capture: Capture) -> None:
    """Make schema, tables and publication inside the caller's transaction; idempotent.

    It is also what is tried beforehand.
    """
    if not rows(connection, _THERE):  # Postgres asks for the right to make one before it looks for it
        define(connection, sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(_SCHEMA))
    define(
        connection,
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data text)"
        ).format(identifier(capture.signals)),
    )
    beat = identifier(capture.heartbeat)
    made = sql.SQL("CREATE TABLE IF NOT EXISTS {} (id smallint PRIMARY KEY, at timestamptz NOT NULL)")
    define(connection, made.format(beat))
    define(connection, sql.SQL("ALTER TABLE {} {}").format(beat, sql.SQL(specimens.added())))
    first = sql.SQL("INSERT INTO {} (id, at) VALUES (1, clock_timestamp()) ON CONFLICT (id) DO NOTHING")
    connection.execute(first.format(beat))
    given = sql.SQL("UPDATE {} SET {} WHERE id = 1")
    connection.execute(given.format(beat, sql.SQL(specimens.given())))
    publication.publish(connection, capture)


def forget_publication(connection: Session, capture: Capture) -> None:
    """Drop the publication; idempotent."""
    define(connection, sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(capture.connector)))


def forget_tables(connection: Session, capture: Capture) -> None:
    """Drop our tables; idempotent."""
    for table in (capture.signals, capture.heartbeat):
        define(connection, sql.SQL("DROP TABLE IF EXISTS {}").format(identifier(table)))


def forget_schema(connection: Session, _: Capture) -> None:
    """Drop the schema when it is ours and nothing else is in it; idempotent."""
    if rows(connection, _EMPTY):
        define(connection, sql.SQL("DROP SCHEMA IF EXISTS {}").format(_SCHEMA))


def leftovers(capture: Capture) -> tuple[str, ...]:
    """Return the statements that drop slot, publication and tables, for a person to run."""
    name = sql.Identifier(capture.connector)
    tables = sql.SQL(", ").join(identifier(table) for table in (capture.signals, capture.heartbeat))
    statements = (
        sql.SQL("DROP PUBLICATION IF EXISTS {};").format(name),
        sql.SQL("DROP TABLE IF EXISTS {};").format(tables),
    )
    return (_dropped(capture.connector), *(statement.as_string() for statement in statements))


def _dropped(slot: str) -> str:
    """Return the statements that drop a slot of this database, once the session that holds it has ended."""
    ours = f"FROM pg_replication_slots WHERE slot_name = '{slot}' AND database = current_database()"
    return (
        f"SELECT pg_terminate_backend(active_pid, 10000) {ours} AND active;"
        f" SELECT pg_drop_replication_slot(slot_name) {ours};"
    )


def refuse_elsewhere(connection: Session, slot: str, system: str | None) -> None:
    """Refuse to remove anything by a server that has no say over the slot.

    Args:
        connection: To the server that the address leads to.
        slot: The slot's name.
        system: Identity of the cluster in which it was made; None when it is not known.

    Raises:
        SourceError: By a standby (``SOURCE_STANDBY``) or another cluster (``SOURCE_ANOTHER_CLUSTER``); the
            slot of the server that is meant would keep its log for ever.
    """
    (here,) = rows_if_granted(connection, _NOW) or rows(connection, _NOW_ALONE)
    drops = f"{{}}, in database {here['database']}, whoever may drops it by: {_dropped(slot)}"
    if here["standby"]:
        raise SourceError(
            f"The address leads to a standby: the slot {slot} is the primary's to drop.",
            code="SOURCE_STANDBY",
            hint="Have the address lead to the primary, then run the same command again.\n"
            + drops.format("On the primary"),
        )
    if None not in (system, here["system"]) and here["system"] != system:
        raise SourceError(
            f"The address leads to another cluster than the one that was added, which may still have {slot}.",
            code="SOURCE_ANOTHER_CLUSTER",
            hint=f"Have the address lead to cluster {system} (pg_control_system), then run the same command"
            f" again.\n{drops.format('There')}",
        )


def drop_slot(connection: Session, name: str) -> None:
    """Drop the slot. The connector must be gone; a connection that lingers on the slot is ended.

    A slot of that name which is another database's is not ours.
    """
    deadline = time.monotonic() + _RELEASE_S
    while found := rows(connection, _HOLDER, name):
        holder: Any = found[0]["active_pid"]
        if holder is None:
            connection.execute(_DROP, (name,))
            continue
        if time.monotonic() > deadline:
            raise SourceError(
                f"The replication slot {name} is still in use by process {holder}.",
                code="SOURCE_SLOT_BUSY",
                hint=_dropped(name),
            )
        if time.monotonic() > deadline - _RELEASE_S / 2:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):  # it is of another role
                connection.execute("SELECT pg_terminate_backend(%s)", (holder,))
        time.sleep(0.2)


def hold(connection: Session, capture: Capture, *, loading: bool = False) -> Hold:
    """Return what the database keeps for the slot; while ``loading``, for whom the connector waits."""
    (clock,) = rows_if_granted(connection, _NOW) or rows(connection, _NOW_ALONE)
    found = rows(connection, _HOLD, capture.connector)
    told = {TableId(row["schema"], row["name"]) for row in rows(connection, _PUBLISHED, capture.connector)}
    uncaptured = tuple(schema.table for schema in capture.tables if schema.table not in told)
    if not found:
        # Such a session makes no slot: it is turned away by the fence, after a moment.
        astray = rows_if_granted(connection, _ELSEWHERE, capture.connector) if loading else None
        return Hold(
            exists=False,
            active=False,
            lost="the slot does not exist",
            confirmed=None,
            held_bytes=None,
            unconfirmed_bytes=None,
            spare_bytes=None,
            system=clock["system"],
            now_ms=clock["now_ms"],
            uncaptured=uncaptured,
            elsewhere=_of(astray[0]["database"]) if astray else "",
        )
    slot = found[0]
    lost = ""
    if slot["reason"] or slot["wal_status"] == "lost":
        lost = f"the slot was invalidated ({slot['reason'] or 'wal_removed'})"
    elsewhere = _of(slot["database"]) if slot["database"] != slot["ours"] else ""
    if elsewhere:
        lost = f"the slot {capture.connector} is that of {elsewhere}, not of database {slot['ours']}"
    return Hold(
        exists=True,
        active=slot["active"],
        lost=lost,
        confirmed=slot["confirmed"],
        held_bytes=slot["held"],
        unconfirmed_bytes=slot["unconfirmed"],
        spare_bytes=slot["spare"],
        system=clock["system"],
        now_ms=clock["now_ms"],
        uncaptured=uncaptured,
        waits=blocking(connection, capture.connector) if loading else (),
        elsewhere=elsewhere,
        barred=None if elsewhere else barred(connection, capture.connector, active=slot["active"]),
        harms=tuple(check_synchronous(connection)),
    )


def insert_signal(connection: Session, table: TableId, signal: str, kind: str, data: str) -> None:
    """Give the connector an order; given again under the same name it stays one."""
    order = sql.SQL("INSERT INTO {} VALUES (%s, %s, %s) ON CONFLICT DO NOTHING").format(identifier(table))
    connection.execute(order, (signal, kind, data))


def tidy(connection: Session, table: TableId, kept: Collection[str]) -> None:
    """Delete orders, and the connector's own marks; the connector has had them by the log.

    Args:
        connection: To the database.
        table: Where they are.
        kept: How the names of those begin that stay.
    """
    orders = sql.SQL(
        "DELETE FROM {} WHERE NOT EXISTS (SELECT FROM unnest(%s::text[]) k WHERE starts_with(id, k))"
    )
    connection.execute(orders.format(identifier(table)), (list(kept),))
