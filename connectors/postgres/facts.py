"""What the catalogue says of captured tables, as facts that can be kept and held against later ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.rows import DictRow

from connectors.base import Capture
from connectors.postgres.names import with_natives
from connectors.postgres.namesakes import with_namesakes
from connectors.postgres.replica_identity import with_bounds
from connectors.postgres.session import Session, rows
from connectors.postgres.tree import with_guards, with_leaves
from connectors.postgres.types import CLAIMED
from headrace.model.schema import TableId

__all__ = ["Facts", "read_facts"]

_PUBLICATION = """
SELECT p.oid::bigint AS oid, p.xmin::text AS version,
       p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AND p.pubviaroot
       AND coalesce(to_jsonb(p) ->> 'pubgencols' = 'n', true) AS "right",
       p.pubupdate OR p.pubdelete AS refuses
FROM pg_publication p WHERE p.pubname = %s
"""
_HORIZON = """
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon,
       current_setting('server_version_num')::int AS version, quote_ident(current_user) AS role
"""
_TABLES = with_bounds(
    with_leaves(
        with_guards(
            with_namesakes(
                with_natives("""
SELECT w.schema, w.name, c.oid::bigint AS oid, c.relkind::text AS kind,
  (SELECT k.relkind::text FROM pg_class k WHERE k.relnamespace = n.oid AND k.relname = w.name) AS bearer,
  namesakes_of(c) AS namesakes,
  c.relrowsecurity AND NOT (r.rolsuper OR r.rolbypassrls
      OR (pg_has_role(c.relowner, 'USAGE') AND NOT c.relforcerowsecurity)) AS filtered,
  (SELECT jsonb_object_agg(a.attnum, jsonb_build_array(a.attname, native_of(a),
       a.atttypid::bigint, a.attgenerated::text, a.xmin::text, a.atthasmissing, d.oid::bigint,
       CASE WHEN a.attacl IS NULL THEN md5(a::text) END))
   FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
  (WITH RECURSIVE used AS (
       SELECT a.attname, a.atttypid AS type FROM pg_attribute a
       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     UNION
       SELECT u.attname, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END
       FROM used u JOIN pg_type t ON t.oid = u.type WHERE t.typtype = 'd' OR t.typcategory = 'A')
   SELECT jsonb_object_agg(u.attname || ' ' || e.oid, jsonb_build_array(e.enumlabel, e.xmin::text,
       e.enumsortorder))
   FROM used u JOIN pg_enum e ON e.enumtypid = u.type) AS labels,
  (SELECT jsonb_build_array(y.xmin::text, md5(to_jsonb(y)::text)) FROM pg_type y
   WHERE y.oid = c.reltype) AS row_type,
  CASE WHEN n.nspacl IS NULL THEN jsonb_build_array(n.xmin::text, md5(n::text)) END AS schema_row,
  (SELECT jsonb_agg(k.columns) FROM pg_index i CROSS JOIN LATERAL (
       SELECT jsonb_agg(a.attname) AS columns
       FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(n, place)
       JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n WHERE k.place <= i.indnkeyatts) AS k
   WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
     AND i.indpred IS NULL AND i.indexprs IS NULL) AS uniques,
  (SELECT jsonb_agg(a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
     AND NOT a.attisdropped AND NOT (a.attnotnull AND NOT EXISTS (
         SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'n'
           AND k.conkey = ARRAY[a.attnum] AND NOT k.convalidated))) AS nullable,
  (SELECT jsonb_agg(a.attname ORDER BY k.place) FROM pg_index i
   CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(n, place)
   JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n
   WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts) AS key,
  (SELECT jsonb_agg(format('%%I.%%I', n.nspname, k.relname) ORDER BY k.oid)
   FROM pg_inherits h JOIN pg_class k ON k.oid = h.inhrelid JOIN pg_namespace n ON n.oid = k.relnamespace
   WHERE h.inhparent = c.oid AND c.relkind = 'r') AS heirs,
  (SELECT jsonb_object_agg(l.oid, jsonb_build_object('name', format('%%I.%%I', n.nspname, l.relname),
       'file', l.relfilenode::bigint, 'version', l.xmin::text, 'identity', l.relreplident::text,
       'logged', l.relpersistence = 'p',
       'foreign', CASE l.relkind WHEN 'f' THEN (SELECT format('ALTER TABLE %%I.%%I DETACH PARTITION %%I.%%I;',
               pn.nspname, p.relname, n.nspname, l.relname)
           FROM pg_inherits h JOIN pg_class p ON p.oid = h.inhparent
           JOIN pg_namespace pn ON pn.oid = p.relnamespace WHERE h.inhrelid = l.oid) END,
       'frozen', l.relfrozenxid::text, 'counted', sign(l.reltuples)::int,
       'counts', jsonb_build_array(pg_stat_get_live_tuples(l.oid), pg_stat_get_tuples_inserted(l.oid),
           pg_stat_get_tuples_deleted(l.oid), pg_stat_get_dead_tuples(l.oid)),
       'barred', array_remove(ARRAY[
           CASE WHEN NOT has_schema_privilege(n.oid, 'USAGE')
               THEN format('GRANT USAGE ON SCHEMA %%I TO %%I;', n.nspname, current_user) END,
           CASE WHEN NOT has_table_privilege(l.oid, 'SELECT')
               THEN format('GRANT SELECT ON %%I.%%I TO %%I;', n.nspname, l.relname, current_user) END,
           CASE WHEN l.relrowsecurity AND NOT (r.rolsuper OR r.rolbypassrls
                   OR (pg_has_role(l.relowner, 'USAGE') AND NOT l.relforcerowsecurity))
               THEN format('ALTER ROLE %%I BYPASSRLS;', current_user) END], NULL),
       'upkeep', CASE WHEN current_setting('server_version_num')::int >= 150000 THEN
           pg_stat_get_vacuum_count(l.oid) + pg_stat_get_autovacuum_count(l.oid)
           + pg_stat_get_analyze_count(l.oid) + pg_stat_get_autoanalyze_count(l.oid) END,
       'came', (SELECT h.xmin::text FROM pg_inherits h WHERE h.inhrelid IN (
                    SELECT a.relid FROM pg_partition_ancestors(l.oid) a WHERE a.relid <> c.oid)
                ORDER BY age(h.xmin) LIMIT 1),
       'step', (SELECT h.cmin::text::bigint FROM pg_inherits h WHERE h.inhrelid IN (
                    SELECT a.relid FROM pg_partition_ancestors(l.oid) a WHERE a.relid <> c.oid)
                ORDER BY age(h.xmin), h.cmin::text::bigint DESC LIMIT 1),
       'way', (SELECT jsonb_object_agg(h.inhrelid, h.xmin::text) FROM pg_inherits h WHERE h.inhrelid IN (
                   SELECT a.relid FROM pg_partition_ancestors(l.oid) a WHERE a.relid <> c.oid)),
       'born', (SELECT bool_and(EXISTS (
                    SELECT FROM pg_attribute a JOIN pg_attribute b
                        ON b.attrelid = a.attrelid AND b.xmin = a.xmin AND b.cmin = a.cmin
                    WHERE a.attrelid = h.inhrelid AND a.xmin = h.xmin AND a.attnum < 0 AND b.attnum > 0))
                FROM pg_inherits h WHERE h.inhrelid IN (
                    SELECT a.relid FROM pg_partition_ancestors(l.oid) a WHERE a.relid <> c.oid)),
       'said', md5((to_jsonb(l) - '{relpages,reltuples,relallvisible,relallfrozen,relfrozenxid,relminmxid,
                                    relhasindex}'::text[])::text),
       'number', l.oid::bigint, 'keyed', keyed(l), 'guarded', c.relkind <> 'p' OR guarded(c, l),
       'key', (SELECT jsonb_agg(a.attname)
               FROM pg_index i, unnest((i.indkey::int2[])[:i.indnkeyatts - 1]) n
               JOIN pg_attribute a ON a.attrelid = l.oid AND a.attnum = n
               WHERE i.indrelid = l.oid AND i.indisvalid
                 AND CASE l.relreplident WHEN 'i' THEN i.indisreplident
                     ELSE i.indisprimary AND i.indimmediate END),
       'anchor', (SELECT CASE WHEN k.oid IS NOT NULL THEN jsonb_build_array('constraint', k.oid::bigint)
                              WHEN i.xmin = x.xmin AND NOT EXISTS (SELECT FROM pg_attribute a
                                  WHERE a.attrelid = x.oid AND a.xmin = x.xmin)
                              THEN jsonb_build_array('swapped', i.indexrelid::bigint)
                              ELSE jsonb_build_array('index', i.indexrelid::bigint) END
                         || to_jsonb(x.relfilenode::bigint)
                  FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
                  LEFT JOIN pg_constraint k ON k.conrelid = i.indrelid AND k.conindid = i.indexrelid
                      AND k.contype IN ('p', 'u')
                  WHERE i.indrelid = l.oid
                    AND CASE l.relreplident WHEN 'i' THEN i.indisreplident
                        WHEN 'd' THEN i.indisprimary ELSE false END),
       'indexes', (SELECT jsonb_object_agg(i.indexrelid, jsonb_build_array(i.xmin::text,
                       md5(to_jsonb(i)::text)))
                   FROM pg_index i WHERE i.indrelid = l.oid AND i.indisunique AND i.indimmediate),
       'keepers', CASE WHEN l.relreplident = 'f' THEN (
           SELECT jsonb_agg(jsonb_build_array(i.indexrelid::bigint, k.oid::bigint,
               (SELECT jsonb_agg(a.attname) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS c(n, place)
                JOIN pg_attribute a ON a.attrelid = l.oid AND a.attnum = c.n WHERE c.place <= i.indnkeyatts),
               k.oid IS NULL AND i.xmin = x.xmin AND NOT EXISTS (
                   SELECT FROM pg_attribute a WHERE a.attrelid = x.oid AND a.xmin = x.xmin),
               x.relfilenode::bigint))
           FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
           LEFT JOIN pg_constraint k ON k.conrelid = i.indrelid AND k.conindid = x.oid
               AND k.contype IN ('p', 'u')
           WHERE i.indrelid = l.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
             AND i.indpred IS NULL AND i.indexprs IS NULL) END))
   FROM (SELECT t.relid FROM leaves_of(c) t UNION ALL SELECT c.oid WHERE c.relkind = 'r') u
   JOIN pg_class l ON l.oid = u.relid JOIN pg_namespace n ON n.oid = l.relnamespace) AS units,
  (SELECT jsonb_build_array(m.oid::bigint, m.xmin::text,
       num_nulls(to_jsonb(m) ->> 'prqual', to_jsonb(m) ->> 'prattrs') = 2)
   FROM pg_publication_rel m JOIN pg_publication p ON p.oid = m.prpubid
   WHERE m.prrelid = c.oid AND p.pubname = %s) AS member,
  (SELECT jsonb_agg(format('%%I.%%I', n.nspname, k.relname)) FROM pg_partition_ancestors(c.oid) a
   JOIN pg_publication_rel m ON m.prrelid = a.relid JOIN pg_publication p ON p.oid = m.prpubid
   JOIN pg_class k ON k.oid = a.relid JOIN pg_namespace n ON n.oid = k.relnamespace
   WHERE a.relid <> c.oid AND p.pubname = %s) AS above,
  bounds_of(c)::jsonb AS bounds
FROM unnest(%s::text[], %s::text[]) AS w(schema, name)
JOIN pg_roles r ON r.rolname = current_user
LEFT JOIN pg_namespace n ON n.nspname = w.schema
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name AND c.relkind IN ('r', 'p')
""")
            )
        )
    )
)


@dataclass(frozen=True, slots=True)
class Facts:
    """One look at the catalogue; all of it can be kept as JSON.

    Args:
        publication: Its identity and whether its options are right; None when there is none.
        tables: What the catalogue says of each table.
        horizon: Transactions before this one had ended.
        version: The server's.
        role: Ours, as SQL.
    """

    publication: Mapping[str, Any] | None
    tables: Mapping[TableId, Mapping[str, Any]]
    horizon: str
    version: int
    role: str


def _with_counts(row: DictRow) -> DictRow:
    """Return what the catalogue says of a table, with the numbers of rows of its partitions apart.

    They are those of living rows, of inserts and deletes so far, and of dead rows. They change all the time,
    which alone is no news.
    """
    counts = {oid: unit.pop("counts") for oid, unit in (row["units"] or {}).items()}
    return {**row, "counts": counts if row["kind"] == "p" else {}}


def read_facts(connection: Session, capture: Capture) -> Facts:
    """Look at the catalogue; takes no lock upon any table."""
    (server,) = rows(connection, _HORIZON)
    found = rows(connection, _PUBLICATION, capture.connector)
    named = [schema.table for schema in capture.tables]
    schemas, names = [table.schema for table in named], [table.name for table in named]
    read = rows(connection, _TABLES, list(CLAIMED), capture.connector, capture.connector, schemas, names)
    tables = {TableId(row.pop("schema"), row.pop("name")): _with_counts(row) for row in read}
    return Facts(found[0] if found else None, tables, server["horizon"], server["version"], server["role"])
