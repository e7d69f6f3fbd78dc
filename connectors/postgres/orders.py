"""How the values of a table's key are ordered, and how the connector's sessions compare them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from connectors.postgres.session import Session, rows

__all__ = ["compared_otherwise", "text_orders"]

_TEXTS = """
WITH texts AS (
    -- Another order writes the column's row anew, as a grant that says the same does, and makes
    -- the key again, as no grant does.
    SELECT a.attrelid, a.attnum, a.attcollation AS collation,
           CASE WHEN a.attacl IS NULL THEN a.xmin::text
                ELSE (SELECT k.oid::text FROM pg_constraint k
                      WHERE k.conrelid = a.attrelid AND k.contype = 'p') END AS version
    FROM pg_attribute a
    WHERE a.attrelid = ANY(%s::oid[]) AND a.attcollation <> 0 AND NOT a.attisdropped
      AND EXISTS (SELECT FROM pg_index i
                  WHERE i.indrelid = a.attrelid AND i.indisunique AND a.attnum = ANY(i.indkey))
), libraries AS (
    -- Once for each collation: to look it up in ICU takes long.
    SELECT o.id, pg_collation_actual_version(o.id) AS version
    FROM (SELECT DISTINCT x.collation AS id FROM texts x) o
)
SELECT x.attrelid::bigint AS oid, x.attnum::int AS number, l.version AS library, x.version
FROM texts x JOIN libraries l ON l.id = x.collation
"""

_COMPARED_OTHERWISE = """
WITH RECURSIVE wanted AS (
    SELECT a.attrelid, a.attname, a.atttypid AS type
    FROM unnest(%s::oid[], %s::text[]) AS k(oid, name)
    JOIN pg_attribute a ON a.attrelid = k.oid AND a.attname = k.name AND NOT a.attisdropped
  UNION ALL
    SELECT w.attrelid, w.attname, t.typbasetype FROM wanted w JOIN pg_type t ON t.oid = w.type
    WHERE t.typtype = 'd'
), types AS (
    -- Enums and ranges are in the order of all their kind. Of the other types of Postgres' own nobody can
    -- have a session find another.
    SELECT t.oid, CASE t.typtype WHEN 'e' THEN 'anyenum'::regtype WHEN 'r' THEN 'anyrange'::regtype
                  ELSE t.oid END AS sorted_as
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE t.oid IN (SELECT w.type FROM wanted w) AND t.typtype <> 'd'
      AND (n.nspname <> 'pg_catalog' OR t.typtype = 'r')
), greater AS (
    -- Those that the connector's sessions see, the first of them first.
    SELECT o.oid, o.oprleft, o.oprright,
           CASE n.nspname WHEN 'pg_catalog' THEN 0 WHEN current_user THEN 1 ELSE 2 END AS place
    FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace
    WHERE o.oprname = '>' AND n.nspname IN ('pg_catalog', current_user, 'public')
      AND has_schema_privilege(n.oid, 'USAGE')
)
SELECT w.attrelid::bigint AS oid, w.attname AS name
FROM wanted w JOIN types t ON t.oid = w.type
WHERE NOT EXISTS (
    SELECT FROM pg_opclass c JOIN pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
    JOIN pg_amop p ON p.amopfamily = c.opcfamily AND p.amoplefttype = c.opcintype
        AND p.amoprighttype = c.opcintype AND p.amopstrategy = 5
    WHERE c.opcdefault AND c.opcintype = t.sorted_as
      AND p.amopopr = (SELECT g.oid FROM greater g
                       WHERE g.oprleft = g.oprright AND g.oprleft IN (t.oid, t.sorted_as)
                       ORDER BY g.oprleft <> t.oid, g.place LIMIT 1))
  -- For a text, Postgres takes the operator of what a value becomes by itself before one of all its kind.
  OR t.oid <> t.sorted_as AND EXISTS (
    SELECT FROM pg_cast k JOIN greater g ON g.oprleft = k.casttarget
    WHERE k.castsource = t.oid AND k.castcontext = 'i')
"""


def text_orders(connection: Session, tables: Sequence[int]) -> dict[tuple[int, int], list[str | None]]:
    """Return a table's oid and the number of a text in a unique index → what tells its order from others.

    That is the version of the library that orders it, None where the server does not tell it, and what is
    written anew when the column gets another order.

    Args:
        connection: To the database.
        tables: The oids of the tables.
    """
    found = rows(connection, _TEXTS, list(tables))
    return {(row["oid"], row["number"]): [row["library"], row["version"]] for row in found}


def compared_otherwise(connection: Session, columns: Collection[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return the columns that the connector's sessions do not compare by the order that ``ORDER BY`` takes.

    They find ``>`` in the schemas of their path (:mod:`~connectors.postgres.properties`). Of a type of
    another schema, or of one that calls its operators otherwise, they find none, or that of another type.

    Args:
        connection: To the database.
        columns: Each a table's oid and the column's name; all others are left out.
    """
    found = rows(connection, _COMPARED_OTHERWISE, [oid for oid, _ in columns], [name for _, name in columns])
    return {(row["oid"], row["name"]) for row in found}
