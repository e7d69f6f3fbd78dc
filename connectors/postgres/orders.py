"""How texts of a table's key are ordered, and whether it may have been otherwise for a while."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.postgres.session import Session, rows

__all__ = ["text_orders"]

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
