"""What a table needs for its changes to be spread over several partitions of a topic.

Order holds within a partition. So a key has to stay in one whatever way it is spelled, and a changed key,
which is a delete in one partition and a row in another, has to bring the whole row with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.postgres.session import Session, rows
from connectors.postgres.tree import with_leaves
from headrace.model.finding import Finding
from headrace.model.schema import LogicalType, TableSchema

__all__ = ["check_spread"]

_FACTS = with_leaves("""
SELECT CASE c.relkind WHEN 'p' THEN (SELECT bool_and(l.relreplident = 'f')
                                     FROM leaves_of(c) p JOIN pg_class l ON l.oid = p.relid)
       ELSE c.relreplident = 'f' END AS "full",
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attstorage <> 'p'
             ORDER BY 1) AS large,
       ARRAY(SELECT a.attname::text FROM pg_attribute a JOIN pg_collation o ON o.oid = a.attcollation
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT o.collisdeterministic) AS loose
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
""")
_SPELLED_ONE_WAY = (
    LogicalType.BOOLEAN,
    LogicalType.INT16,
    LogicalType.INT32,
    LogicalType.INT64,
    LogicalType.UUID,
    LogicalType.TEXT,
)


def check_spread(connection: Session, schema: TableSchema, full: str) -> Iterator[Finding]:
    """Yield what speaks against several partitions for the table.

    Args:
        connection: To the database.
        schema: The table.
        full: What makes the log tell whole rows of it; empty where that cannot be had.
    """
    table = schema.table
    (facts,) = rows(connection, _FACTS, table.schema, table.name)
    large = set(facts["large"]) & {column.name for column in schema.told} - set(schema.key)
    if large and not facts["full"]:
        yield Finding.error(
            "SOURCE_SPREAD_IDENTITY",
            f"{table} may hold large values ({', '.join(sorted(large))}): when a row's key changes, those"
            " that stay as they are would be left behind in another partition.",
            f"{full}  -- or --partitions 1" if full else "Use --partitions 1.",
        )
    for column in schema.key_columns:
        loose = column.base == "citext" or column.name in facts["loose"]
        if column.type not in _SPELLED_ONE_WAY or column.dimensions or loose:
            yield Finding.error(
                "SOURCE_SPREAD_KEY",
                f"The key of {table} uses {column.name} ({column.native}), whose values have more than one"
                " spelling: changes of a row would not stay in one partition.",
                "Use --partitions 1; several are for keys of integers, uuid, text and boolean.",
            )
