"""Replica identities that were changed after registration, so that the log no longer tells all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg.rows import DictRow

from connectors.base import Weakness
from connectors.postgres.replica_identity import FULL, GENERATED_REFUSED, Limits, alter, with_bounds
from connectors.postgres.session import Session, rows
from connectors.postgres.tree import with_leaves
from connectors.postgres.types import wants_full
from headrace.model.pasted import word
from headrace.model.schema import TableId, TableSchema

__all__ = ["wanting", "weakened", "whole_rows"]

_IDENTITIES = with_bounds(
    with_leaves("""
SELECT n.nspname::text AS schema, c.relname::text AS name,
       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
             AND NOT a.attisdropped AND a.attgenerated <> '') AS generated,
       bounds_of(c)::jsonb AS bounds,
       jsonb_agg(format('%%I.%%I', ln.nspname, l.relname) ORDER BY l.oid) AS units,
       bool_and(l.relreplident = 'f') AS "full",
       bool_or(l.relreplident = 'n'
               OR l.relreplident = 'd' AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = l.oid
                                                       AND i.indisprimary AND i.indimmediate)
               OR l.relreplident = 'i' AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = l.oid
                                                       AND i.indisreplident)) AS "none",
       (WITH RECURSIVE resolved AS (
            SELECT a.attname, a.atttypid AS type, false AS domain FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          UNION ALL
            SELECT r.attname, t.typbasetype, true FROM resolved r JOIN pg_type t ON t.oid = r.type
            WHERE t.typtype = 'd'
        )
        SELECT json_agg(json_build_array(r.attname, coalesce(e.typname, t.typname),
                                         coalesce(e.typtype, t.typtype), e.oid IS NOT NULL, r.domain))
        FROM resolved r JOIN pg_type t ON t.oid = r.type AND t.typtype <> 'd'
        LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid) AS types
FROM unnest(%s::text[], %s::text[]) AS wanted(schema, name)
JOIN pg_namespace n ON n.nspname = wanted.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
CROSS JOIN LATERAL (
    SELECT p.relid FROM leaves_of(c) p UNION SELECT c.oid WHERE c.relkind = 'r'
) AS leaves
JOIN pg_class l ON l.oid = leaves.relid AND l.relkind <> 'f' JOIN pg_namespace ln ON ln.oid = l.relnamespace
GROUP BY c.oid, n.nspname, c.relname, c.relkind
""")
)


def wanting(connection: Session, schemas: Sequence[TableSchema]) -> dict[TableId, list[str]]:
    """Return the captured columns of which the log tells all only under REPLICA IDENTITY FULL."""
    found = rows(connection, _IDENTITIES, [s.table.schema for s in schemas], [s.table.name for s in schemas])
    captured = {schema.table: {column.name for column in schema.told} for schema in schemas}
    wanted: dict[TableId, list[str]] = {}
    for row in found:
        table = TableId(row["schema"], row["name"])
        names = [name for name in _wanting(row) if name in captured[table]]
        if names:
            wanted[table] = names
    return wanted


def _wanting(row: DictRow) -> Iterator[str]:
    for name, native, kind, element, domain in row["types"] or ():
        if wants_full(native, kind, element=element, domain=domain):
            yield name


def weakened(connection: Session, schemas: Sequence[TableSchema]) -> dict[TableId, Weakness]:
    """Return the tables whose replica identity does not do for what is captured of them, and why."""
    found = rows(connection, _IDENTITIES, [s.table.schema for s in schemas], [s.table.name for s in schemas])
    captured = {schema.table: {column.name for column in schema.told} for schema in schemas}
    weak: dict[TableId, Weakness] = {}
    for row in found:
        table = TableId(row["schema"], row["name"])
        full = _full(connection, row)
        lost = [] if row["full"] else [name for name in _wanting(row) if name in captured[table]]
        if row["none"]:
            weak[table] = Weakness(
                "its replica identity is gone: Postgres refuses its updates and deletes", full
            )
        elif lost:
            why = f"its replica identity is no longer FULL: large values of {', '.join(lost)} arrive as NULL"
            again = f"headrace resnapshot SOURCE {word(str(table))}"
            weak[table] = Weakness(why, f"{full} -- then: {again}" if full else "")
    return weak


def whole_rows(connection: Session, tables: Sequence[TableId]) -> dict[TableId, str]:
    """Return the statements that make the log tell whole rows of each table.

    They are empty where Postgres would refuse the application's updates then. Tables that are gone have none.
    """
    found = rows(connection, _IDENTITIES, [t.schema for t in tables], [t.name for t in tables])
    return {TableId(row["schema"], row["name"]): _full(connection, row) for row in found}


def _full(connection: Session, row: DictRow) -> str:
    generated = row["generated"] if connection.info.server_version >= GENERATED_REFUSED else ()
    return alter(row["units"], FULL, Limits.of(generated, row))
