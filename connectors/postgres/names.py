"""Names of types, as they are registered and shown, in sessions that see no schema but Postgres' own.

A type is called as in a session whose ``search_path`` is Postgres' default: one of ``public``, or of the
schema named like our role, by its bare name. The connector's sessions find it by that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg.rows import DictRow

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["MEANINGS", "Meaning", "meanings", "with_natives"]

_NATIVE = """(
    SELECT CASE WHEN n.nspname IN (current_user, 'public') AND NOT EXISTS (
        SELECT FROM pg_type o JOIN pg_namespace h ON h.oid = o.typnamespace
        WHERE o.typname = e.typname AND o.oid <> e.oid
          AND (h.nspname = 'pg_catalog' OR (h.nspname = current_user AND n.nspname <> current_user)))
      THEN substr(format_type(a.atttypid, a.atttypmod), length(quote_ident(n.nspname)) + 2)
      ELSE format_type(a.atttypid, a.atttypmod) END
    FROM pg_type t LEFT JOIN pg_type i ON i.oid = t.typelem AND i.typarray = t.oid
    JOIN pg_type e ON e.oid = coalesce(i.oid, t.oid) JOIN pg_namespace n ON n.oid = e.typnamespace
    WHERE t.oid = a.atttypid
)"""
MEANINGS = """
WITH RECURSIVE named AS (
    SELECT w.native, CASE
        WHEN to_regtype(w.native) IS NOT NULL THEN w.native
        WHEN to_regtype(quote_ident(current_user) || '.' || w.native) IS NOT NULL
            THEN quote_ident(current_user) || '.' || w.native
        ELSE 'public.' || w.native END AS spelled
    FROM unnest(%s::text[]) AS w(native)
), base AS (
    SELECT n.native, n.spelled, to_regtype(n.spelled)::oid AS type FROM named n
  UNION ALL
    SELECT b.native, b.spelled, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.type
    WHERE t.typtype = 'd'
)
SELECT b.native, b.spelled, coalesce((
    SELECT format('OPERATOR(%%I.%%s)', n.nspname, o.oprname)
    FROM pg_opclass c JOIN pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
    JOIN pg_amop p ON p.amopfamily = c.opcfamily AND p.amoplefttype = c.opcintype
        AND p.amoprighttype = c.opcintype AND p.amopstrategy = 3
    JOIN pg_operator o ON o.oid = p.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
    WHERE c.opcdefault AND c.opcintype = b.type), '=') AS equals
FROM base b LEFT JOIN pg_type t ON t.oid = b.type WHERE t.typtype IS DISTINCT FROM 'd'
"""
"""Asks what a list of native names stands for now."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a native name stands for, as SQL that means the same whatever the session sees.

    Args:
        type: The type.
        equals: The operator by which its default index knows values as the same.
    """

    type: str
    equals: str


def with_natives(statement: LiteralString) -> LiteralString:
    """Return a statement in which ``native_of(a)`` stands for the name of column ``a``'s type."""
    return statement.replace("native_of(a)", _NATIVE)


def meanings(told: Iterable[DictRow]) -> dict[str, Meaning]:
    """Return what native names stand for, by the answer; for a type that is gone, what no statement finds."""
    return {row["native"]: Meaning(row["spelled"], row["equals"]) for row in told}
