"""The publication: made so that Postgres refuses none of the application's statements because of it."""

from __future__ import annotations

from psycopg import sql

from connectors.base import Capture
from connectors.postgres.facts import read_facts
from connectors.postgres.session import Session, define, identifier, rows
from connectors.postgres.standing import refused
from headrace.model.schema import TableId

__all__ = ["publish", "right"]

_OPTIONS = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
_GENERATED_COLUMNS = 180_000
"""The first version of Postgres that can publish stored generated columns."""

_FLAGS = """
SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate AND pubviaroot
       AND coalesce(to_jsonb(p) ->> 'pubgencols' = 'n', true) AS right
FROM pg_publication p WHERE pubname = %s
"""
_MEMBERS = """
SELECT n.nspname::text AS schema, c.relname::text AS name,
       num_nulls(to_jsonb(r) ->> 'prqual', to_jsonb(r) ->> 'prattrs') = 2 AS whole
FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s
"""


def right(version: int) -> str:
    """Return the publication's options on a server of that version, as SQL.

    Generated columns are not published: the connector, once it has read their table anew beside the stream,
    fails at the first change that brings them.
    """
    return f"{_OPTIONS}, publish_generated_columns = none" if version >= _GENERATED_COLUMNS else _OPTIONS


def publish(connection: Session, capture: Capture) -> None:
    """Create the publication, or change what differs of it; inside the caller's transaction.

    What is as it should be is not touched: it needs no lock, and its rows in the catalogue stay as they are.
    A table whose updates Postgres would refuse then is not added.
    """
    name = capture.connector
    publication = sql.Identifier(name)
    tables = [*(schema.table for schema in capture.tables), capture.signals, capture.heartbeat]
    told = sql.SQL(right(connection.info.server_version))
    facts = read_facts(connection, capture)
    unfit = {table for table, now in facts.tables.items() if refused(now, facts.version)}
    flags = rows(connection, _FLAGS, name)
    if not flags:
        fit = _only([table for table in tables if table not in unfit])
        made = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH ({})")
        define(connection, made.format(publication, fit, told))
        return
    if not flags[0]["right"]:
        define(connection, sql.SQL("ALTER PUBLICATION {} SET ({})").format(publication, told))
    members = {TableId(row["schema"], row["name"]): row["whole"] for row in rows(connection, _MEMBERS, name)}
    wrong = [table for table, whole in members.items() if table not in tables or not whole]
    lacking = [table for table in tables if not members.get(table) and table not in unfit]
    if wrong:
        define(connection, sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(publication, _only(wrong)))
    if lacking:
        define(connection, sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(publication, _only(lacking)))


def _only(tables: list[TableId]) -> sql.Composed:
    """Return the tables as a list; without ONLY the tables that inherit from them would come along."""
    return sql.SQL(", ").join(sql.SQL("ONLY {}").format(identifier(table)) for table in tables)
