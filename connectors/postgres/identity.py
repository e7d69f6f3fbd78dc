"""Replica identities that were changed after registration, so that the log no longer tells all."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.base import Weakness
from connectors.postgres.session import Session, rows
from connectors.postgres.types import wants_full
from headrace.model.schema import TableId, TableSchema

__all__ = ["weakened"]

_IDENTITIES = """
SELECT n.nspname::text AS schema, c.relname::text AS name, bool_and(l.relreplident = 'f') AS "full",
       bool_or(l.relreplident = 'n'
               OR l.relreplident = 'd' AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = l.oid
                                                       AND i.indisprimary AND i.indimmediate)
               OR l.relreplident = 'i' AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = l.oid
                                                       AND i.indisreplident)) AS "none",
       (WITH RECURSIVE resolved AS (
            SELECT a.attname, a.atttypid AS type FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          UNION ALL
            SELECT r.attname, t.typbasetype FROM resolved r JOIN pg_type t ON t.oid = r.type
            WHERE t.typtype = 'd'
        )
        SELECT json_agg(json_build_array(r.attname, coalesce(e.typname, t.typname),
                                         coalesce(e.typtype, t.typtype), e.oid IS NOT NULL))
        FROM resolved r JOIN pg_type t ON t.oid = r.type AND t.typtype <> 'd'
        LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid) AS types
FROM unnest(%s::text[], %s::text[]) AS wanted(schema, name)
JOIN pg_namespace n ON n.nspname = wanted.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
CROSS JOIN LATERAL (
    SELECT p.relid FROM pg_partition_tree(c.oid) p WHERE p.isleaf UNION SELECT c.oid WHERE c.relkind = 'r'
) AS leaves
JOIN pg_class l ON l.oid = leaves.relid
GROUP BY c.oid, n.nspname, c.relname
"""


def weakened(connection: Session, schemas: Sequence[TableSchema]) -> dict[TableId, Weakness]:
    """Return the tables whose replica identity does not do for what is captured of them, and why."""
    found = rows(connection, _IDENTITIES, [s.table.schema for s in schemas], [s.table.name for s in schemas])
    captured = {schema.table: schema.by_name for schema in schemas}
    weak: dict[TableId, Weakness] = {}
    for row in found:
        table = TableId(row["schema"], row["name"])
        full = f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL;"
        lost = [
            name
            for name, native, kind, element in row["types"] or ()
            if not row["full"] and name in captured[table] and wants_full(native, kind, element=element)
        ]
        if row["none"]:
            weak[table] = Weakness(
                "its replica identity is gone: Postgres refuses its updates and deletes", full
            )
        elif lost:
            why = f"its replica identity is no longer FULL: large values of {', '.join(lost)} arrive as NULL"
            weak[table] = Weakness(why, f"{full} -- then `headrace resnapshot` of the table")
    return weak
