"""The partitions beneath a table, read from the catalogue alone.

``pg_partition_tree`` locks each of them, so that whoever asks waits for anybody who alters or empties one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["with_leaves"]

_LEAVES = """(
    WITH RECURSIVE tree AS (
        SELECT c.oid AS relid WHERE c.relkind = 'p'
      UNION ALL
        SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.relid
        WHERE NOT h.inhdetachpending
    )
    SELECT tree.relid FROM tree JOIN pg_class k ON k.oid = tree.relid WHERE k.relkind <> 'p'
)"""


def with_leaves(statement: LiteralString) -> LiteralString:
    """Return a statement in which ``leaves_of(c)`` stands for the leaves of a partitioned table ``c``.

    A table of another kind has none.
    """
    return statement.replace("leaves_of(c)", _LEAVES)
