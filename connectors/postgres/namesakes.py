"""Types that another schema has a table or a type of: the connector mixes them up once it starts anew.

Temporary tables are passed over: they are gone before anybody could give them another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["with_namesakes"]

_NAMESAKES = """(
    SELECT jsonb_object_agg(a.attname, jsonb_build_array(
        o.typnamespace::regnamespace || '.' || quote_ident(o.typname),
        CASE WHEN EXISTS (SELECT FROM pg_class k WHERE k.oid = o.typrelid AND k.relkind <> 'c')
            THEN 'TABLE' ELSE 'TYPE' END))
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type e ON e.oid = t.typelem
    JOIN pg_type o ON o.typname = coalesce(e.typname, t.typname) AND o.typnamespace <> t.typnamespace
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      AND left(o.typnamespace::regnamespace::text, 8) <> 'pg_temp_'
      AND (t.typnamespace <> c.relnamespace OR o.typname = ANY(%s::text[])))"""


def with_namesakes(statement: LiteralString) -> LiteralString:
    """Return a statement in which ``namesakes_of(c)`` stands for column → its type's namesake and what it is.

    Its parameter there is :data:`connectors.postgres.types.CLAIMED`.
    """
    return statement.replace("namesakes_of(c)", _NAMESAKES)
