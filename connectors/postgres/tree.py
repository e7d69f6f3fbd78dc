"""The partitions beneath a table, read from the catalogue alone.

``pg_partition_tree`` locks each of them, so that whoever asks waits for anybody who alters or empties one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["with_guards", "with_leaves"]

_LEAVES = """(
    WITH RECURSIVE tree AS (
        SELECT c.oid AS relid WHERE c.relkind = 'p'
      UNION ALL
        SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.relid
        WHERE NOT h.inhdetachpending
    )
    SELECT tree.relid FROM tree JOIN pg_class k ON k.oid = tree.relid WHERE k.relkind <> 'p'
)"""


# Postgres takes a partition's own primary key for its part of the table's, also when it is deferrable.
_KEYED = """EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = l.oid AND i.indisvalid AND i.indimmediate AND i.indisprimary)"""
_GUARDED = """EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = l.oid AND i.indisvalid AND i.indimmediate
      AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
      AND NOT EXISTS (
          SELECT FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(n, place)
          JOIN pg_attribute a ON a.attrelid = l.oid AND a.attnum = k.n
          WHERE k.place <= i.indnkeyatts AND a.attname NOT IN (
              SELECT b.attname
              FROM pg_index r CROSS JOIN unnest((r.indkey::int2[])[:r.indnkeyatts - 1]) AS n
              JOIN pg_attribute b ON b.attrelid = c.oid AND b.attnum = n
              WHERE r.indrelid = c.oid AND r.indisprimary)))"""


def with_guards(statement: LiteralString) -> LiteralString:
    """Return a statement in which two words stand for what tells the rows of leaf ``l`` of table ``c`` apart.

    ``guarded(c, l)`` is whether an index sees to it that at no moment two of them share a primary key of the
    table; ``keyed(l)`` whether the leaf's own primary key can be its replica identity.
    """
    return statement.replace("guarded(c, l)", _GUARDED).replace("keyed(l)", _KEYED)


def with_leaves(statement: LiteralString) -> LiteralString:
    """Return a statement in which ``leaves_of(c)`` stands for the leaves of a partitioned table ``c``.

    A table of another kind has none.
    """
    return statement.replace("leaves_of(c)", _LEAVES)
