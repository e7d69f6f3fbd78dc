"""What others have built upon our two tables: while it is there, Postgres drops neither of them."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg.rows import DictRow

from connectors.base import Capture
from connectors.postgres.advice import briefly
from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session, quoted
from headrace.model.finding import Finding

__all__ = ["check_built_upon", "drops"]

# A view depends on nothing itself: its rule and its columns do, none of which can be dropped without it. What
# is a part of another thing goes with that. A view may have been made one upon itself: the walk has an end.
_BUILT = """
WITH RECURSIVE built AS (
    SELECT 'pg_class'::regclass::oid AS class, c.oid AS object, 0 AS part, 0 AS depth, false AS apart
    FROM unnest(%s::text[], %s::text[]) AS w(schema, name)
    JOIN pg_namespace n ON n.nspname = w.schema
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
  UNION
    SELECT coalesce(v.refclassid, d.classid), coalesce(v.refobjid, d.objid),
           CASE WHEN k.relkind IN ('v', 'm') THEN 0 ELSE d.objsubid END, b.depth + 1, d.deptype = 'n'
    FROM built b
    JOIN pg_depend d ON d.refclassid = b.class AND d.refobjid = b.object AND b.part IN (0, d.refobjsubid)
    LEFT JOIN pg_depend v ON d.classid = 'pg_rewrite'::regclass AND v.classid = d.classid
        AND v.objid = d.objid AND v.deptype = 'i'
    LEFT JOIN pg_class k ON d.classid = 'pg_class'::regclass AND k.oid = d.objid
    WHERE d.deptype IN ('n', 'a', 'i') AND b.depth < 32
      AND (coalesce(v.refclassid, d.classid), coalesce(v.refobjid, d.objid)) <> (b.class, b.object)
)
SELECT i.type, i.identity, a.object_names AS names
FROM (SELECT class, object, part, max(depth) AS depth FROM built
      GROUP BY class, object, part HAVING bool_and(apart)) AS b
CROSS JOIN LATERAL pg_identify_object(b.class, b.object, b.part) AS i
CROSS JOIN LATERAL pg_identify_object_as_address(b.class, b.object, b.part) AS a
ORDER BY b.depth DESC, i.identity
"""
_OF_ANOTHER = {
    "table constraint": "ALTER TABLE {of} DROP CONSTRAINT {name};",
    "domain constraint": "ALTER DOMAIN {of} DROP CONSTRAINT {name};",
    "table column": "ALTER TABLE {of} DROP COLUMN {name};",
    "foreign table column": "ALTER FOREIGN TABLE {of} DROP COLUMN {name};",
    "composite type column": "ALTER TYPE {of} DROP ATTRIBUTE {name};",
    "default value": "ALTER TABLE {of} ALTER COLUMN {name} DROP DEFAULT;",
}
"""Kind of a part of something else → the statement that drops it."""


def check_built_upon(connection: Session, capture: Capture) -> Iterator[Finding]:
    """Yield what keeps our tables from being removed, and made anew, with the statements that drop it."""
    if found := _built(connection, capture):
        named = ", ".join(f"the {row['type']} {row['identity']}" for row in found)
        yield Finding.error(
            "SOURCE_OBJECT_USED",
            f"Built upon our two tables, which cannot be removed while it is there: {named}.",
            " ".join(map(_dropping, found)),
        )


def drops(connection: Session, capture: Capture) -> list[str]:
    """Return the statements that drop what is built upon our tables; what depends on another thing first."""
    return [_dropping(row) for row in _built(connection, capture)]


def _built(connection: Session, capture: Capture) -> list[DictRow]:
    ours = (capture.signals, capture.heartbeat)
    schemas, names = [table.schema for table in ours], [table.name for table in ours]
    return rows_if_granted(connection, _BUILT, schemas, names) or []


def _dropping(row: DictRow) -> str:
    if told := _OF_ANOTHER.get(row["type"]):
        *of, name = map(quoted, row["names"])
        return briefly(told.format(of=".".join(of), name=name))
    return f"DROP {row['type'].upper()} {row['identity']};"
