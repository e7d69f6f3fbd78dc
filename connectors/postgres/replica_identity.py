"""Statements that change a replica identity, told only where Postgres refuses nothing because of them.

Postgres refuses every update and delete of a published table whose identity has a generated column in it
(from version 18 on), is not covered by the column list of a publication, or lacks a column that a publication
filters rows by. That publication may be the application's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectors.postgres.advice import briefly, unique_index

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = [
    "DEFAULT",
    "FULL",
    "GENERATED_REFUSED",
    "Limits",
    "alter",
    "guarding",
    "using_index",
    "with_bounds",
]

FULL = "FULL"
DEFAULT = "DEFAULT"
GENERATED_REFUSED = 180_000
"""From this version on no identity of a published table may have a generated column."""

_BOUNDS = """(
    WITH RECURSIVE beneath AS (
        SELECT c.oid AS relid
      UNION ALL
        SELECT h.inhrelid FROM beneath JOIN pg_inherits h ON h.inhparent = beneath.relid
        WHERE c.relkind = 'p'
    )
    SELECT coalesce(json_agg(json_build_array(
        p.pubname,
        CASE WHEN to_jsonb(m) ->> 'prattrs' IS NOT NULL THEN
            (SELECT array_agg(a.attname::text) FROM pg_attribute a WHERE a.attrelid = m.prrelid
             AND a.attnum > 0 AND a.attnum::text = ANY(
                 regexp_split_to_array(translate(to_jsonb(m) ->> 'prattrs', '[]{},', '     '), ' +'))) END,
        CASE WHEN to_jsonb(m) ->> 'prqual' IS NOT NULL THEN
            (SELECT array_agg(DISTINCT a.attname::text) FROM pg_depend d JOIN pg_attribute a
             ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
             WHERE d.classid = 'pg_publication_rel'::regclass AND d.objid = m.oid
               AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0) END)), '[]')
    FROM pg_publication_rel m JOIN pg_publication p ON p.oid = m.prpubid
    WHERE (p.pubupdate OR p.pubdelete)
      AND num_nulls(to_jsonb(m) ->> 'prqual', to_jsonb(m) ->> 'prattrs') < 2
      AND m.prrelid IN (SELECT relid FROM beneath UNION SELECT relid FROM pg_partition_ancestors(c.oid))
)"""


def with_bounds(statement: LiteralString) -> LiteralString:
    """Return a statement in which ``bounds_of(c)`` stands for the publications that bind table ``c``.

    Each is its name, the columns that it lists (or null), and those that it filters rows by (or null).
    """
    return statement.replace("bounds_of(c)", _BOUNDS)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a table's replica identity may be.

    Args:
        generated: Columns that may be in none.
        bounds: What :func:`with_bounds` has told.
    """

    generated: frozenset[str]
    bounds: Sequence[Sequence[Any]]

    @classmethod
    def of(cls, generated: Collection[str], told: Mapping[str, Any]) -> Limits:
        """Return the limits of a table of which ``told`` has the ``bounds``."""
        return cls(frozenset(generated), told.get("bounds") or ())

    def bar(self, columns: Collection[str] | None) -> str:
        """Return why Postgres would refuse updates and deletes, empty when it would not.

        Args:
            columns: Those of the identity; None for whole rows.
        """
        inside = self.generated if columns is None else self.generated & set(columns)
        if inside:
            return f"updates and deletes would fail for the generated column {min(inside)}"
        for name, listed, filtered in self.bounds:
            if listed is not None and (columns is None or not set(columns) <= set(listed)):
                return f"updates and deletes would fail for publication {name}, which lists columns"
            if filtered is not None and columns is not None and not set(filtered) <= set(columns):
                return f"updates and deletes would fail for publication {name}, which filters rows"
        return ""


def using_index(name: str) -> str:
    """Return the kind of identity that an index is; ``name`` is quoted."""
    return f"USING INDEX {name}"


def guarding(leaf: str, number: int, key: Collection[str], limits: Limits) -> str:
    """Return the statements after which no two rows of a partition share a key, at no moment.

    They make that index its replica identity, too, unless :meth:`Limits.bar` has something against it.

    Args:
        leaf: The partition, quoted.
        number: Its, in the catalogue: no other index of its schema is called by it.
        key: Of the table that it is a partition of.
        limits: Of that table.
    """
    index = f"unique_{number}"
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in key)
    made = unique_index(leaf, columns, index)
    return f"{made} {alter([leaf], using_index(index), limits, key)}".strip()


def alter(tables: Iterable[str], kind: str, limits: Limits, columns: Collection[str] | None = None) -> str:
    """Return the statements; empty where :meth:`Limits.bar` has something against them.

    Args:
        tables: The table, or each of its partitions, quoted.
        kind: :data:`FULL`, :data:`DEFAULT` or :func:`using_index`.
        limits: Of the table.
        columns: Those of that identity; None for whole rows.
    """
    if limits.bar(columns):
        return ""
    return briefly(*(f"ALTER TABLE {table} REPLICA IDENTITY {kind};" for table in tables))
