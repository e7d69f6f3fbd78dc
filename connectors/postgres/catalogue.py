"""The database's own description of its tables, read from ``pg_catalog``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.errors import LockNotAvailable
from psycopg.rows import DictRow

from connectors.base import Keys
from connectors.postgres.computed import can_be_told
from connectors.postgres.left_out import LeftOut
from connectors.postgres.names import with_natives
from connectors.postgres.orders import compared_otherwise, text_orders
from connectors.postgres.session import Session, identifier, rows
from connectors.postgres.tree import with_leaves
from connectors.postgres.types import (
    array_limit,
    is_list,
    logical_type,
    numeric_digits,
    too_wide,
    wants_full,
)
from connectors.row_count import RowCount
from headrace.model.errors import SourceError
from headrace.model.finding import Finding
from headrace.model.pasted import word
from headrace.model.schema import Column, Digits, LogicalType, TableId, TableSchema

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = [
    "CHOSEN",
    "GENERATED",
    "LEFT_OUT",
    "TOO_WIDE",
    "UNCHANGED_NULL",
    "UNFAITHFUL",
    "Left",
    "columns_left_out",
    "count_rows",
    "digits",
    "estimate_rows",
    "list_tables",
    "missing_now",
    "oids",
    "read_tables",
    "rekeyed_now",
    "sizes",
]

Left = dict[TableId, list[tuple[str, str, str]]]
"""Columns that are not captured, or not in every value: ``(name, native type, why)``."""

CHOSEN = "chosen"
GENERATED = "generated"
UNFAITHFUL = "type"
UNCHANGED_NULL = "unchanged"
TOO_WIDE = "wide"
COMPUTED = (
    "no record carries a generated column, so it is looked up in the database, by the row's key, whenever"
    " the row has changed"
)
LEFT_OUT = (CHOSEN, GENERATED, UNFAITHFUL, UNCHANGED_NULL, TOO_WIDE)
"""The reasons for which a column is not captured at all."""

_TABLES = """
SELECT n.nspname AS schema, c.relname AS name
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND NOT EXISTS (SELECT 1 FROM pg_depend d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 1, 2
"""

_OIDS = """
SELECT n.nspname AS schema, c.relname AS name, c.oid::bigint AS oid, c.relkind IN ('r', 'p') AS is_table
FROM unnest(%s::text[], %s::text[]) AS wanted(schema, name)
JOIN pg_namespace n ON n.nspname = wanted.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
"""

_ESTIMATES = with_leaves("""
SELECT n.nspname AS schema, c.relname AS name, greatest(c.reltuples, 0)::bigint AS estimate,
       (SELECT coalesce(sum(greatest(p.reltuples, 0)), 0)::bigint
        FROM leaves_of(c) t JOIN pg_class p ON p.oid = t.relid) AS leaves
FROM unnest(%s::text[], %s::text[]) AS wanted(schema, name)
JOIN pg_namespace n ON n.nspname = wanted.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
""")

_SIZE = with_leaves("""
SELECT c.oid::bigint AS oid,
       coalesce((SELECT sum(pg_table_size(t.relid)) FROM leaves_of(c) t),
                pg_table_size(c.oid), 0)::bigint AS bytes
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
""")

_COLUMNS = with_natives(
    with_leaves("""
WITH RECURSIVE resolved AS (
    SELECT a.attrelid, a.attnum, a.attname, a.attnotnull, a.attgenerated, a.attndims::int AS dimensions,
           native_of(a) AS native, a.atttypid AS type, a.atttypmod AS typmod, a.attcollation AS collation,
           false AS domain, w."full"
    FROM (
        -- Once for each table, not for each of its columns: OFFSET keeps it apart.
        SELECT c.oid, CASE c.relkind WHEN 'p' THEN (SELECT bool_and(l.relreplident = 'f')
                                                    FROM leaves_of(c) p JOIN pg_class l ON l.oid = p.relid)
                      ELSE c.relreplident = 'f' END AS "full"
        FROM pg_class c WHERE c.oid = ANY(%s::oid[]) OFFSET 0
    ) w JOIN pg_attribute a ON a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT r.attrelid, r.attnum, r.attname, r.attnotnull, r.attgenerated, greatest(r.dimensions, t.typndims),
           r.native, t.typbasetype, CASE WHEN t.typtypmod = -1 THEN r.typmod ELSE t.typtypmod END,
           r.collation, true, r."full"
    FROM resolved r JOIN pg_type t ON t.oid = r.type
    WHERE t.typtype = 'd'
)
SELECT r.attrelid::bigint AS oid, r.attnum::int AS number, r.attname AS name, r.attnotnull AS required,
       r.attgenerated <> '' AS generated, r.attgenerated = 's' AS stored,
       r.native, r.typmod, r.dimensions, r.domain,
       -- Whole numbers of every size are in one order.
       ARRAY[r.attnum::text, CASE WHEN r.type IN (20, 21, 23) THEN '20' ELSE r.type::oid::text END,
             r.collation::oid::text] AS ordered_by,
       t.typname AS type, t.typtype::text AS kind, e.typname AS element, e.typtype::text AS element_kind,
       r."full"
FROM resolved r
JOIN pg_type t ON t.oid = r.type AND t.typtype <> 'd'
LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
ORDER BY r.attrelid, r.attnum
""")
)

_KEYS = """
SELECT i.indrelid::bigint AS oid, a.attname AS name
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = ANY(%s::oid[]) AND i.indisprimary AND k.place <= i.indnkeyatts
ORDER BY i.indrelid, k.place
"""


def list_tables(connection: Session, schemas: Sequence[str]) -> list[TableId]:
    """Return permanent tables and partition roots of the schemas; no extension's tables."""
    return [TableId(row["schema"], row["name"]) for row in rows(connection, _TABLES, list(schemas))]


def oids(connection: Session, tables: Sequence[TableId], *, of_any_kind: bool = False) -> dict[TableId, int]:
    """Return the object ids of those ``tables`` that exist; ``of_any_kind``: views and their like, too."""
    located = _located(connection, _OIDS, tables)
    return {table: row["oid"] for table, row in located.items() if row["is_table"] or of_any_kind}


def sizes(connection: Session, tables: Sequence[TableId]) -> dict[TableId, int]:
    """Return how many bytes the tables take on the disk, partitions and large values with them.

    A table that somebody has locked for longer than a moment is not in it. Partitions are locked one by one.
    """
    named = {oid: table for table, oid in oids(connection, tables).items()}
    sized = _sized(connection, list(named))
    if sized is None:  # somebody has locked one of them
        sized = [row for oid in named for row in _sized(connection, [oid]) or ()]
    return {named[row["oid"]]: row["bytes"] for row in sized}


def _sized(connection: Session, wanted: Sequence[int]) -> list[DictRow] | None:
    """Return the sizes of tables by their numbers; None when one of them is locked for a moment and more."""
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '1s'")
            return rows(connection, _SIZE, list(wanted))
    except LockNotAvailable:
        return None


def estimate_rows(connection: Session, tables: Sequence[TableId]) -> dict[TableId, int]:
    """Return the planner's row estimates; 0 for a table that was never analysed."""
    located = _located(connection, _ESTIMATES, tables)
    return {table: max(row["estimate"], row["leaves"]) for table, row in located.items()}


def count_rows(connection: Session, table: TableId) -> RowCount:
    """Return how many rows of a table, of all its partitions, our role sees."""
    counting = sql.SQL("SELECT count(*) AS rows, pg_current_snapshot()::text AS snapshot FROM {}")
    (found,) = rows(connection, counting.format(identifier(table)))  # one statement, and one moment
    floor, ceiling, running = found["snapshot"].split(":")
    return RowCount(
        int(found["rows"]), int(floor), int(ceiling), frozenset(map(int, filter(None, running.split(","))))
    )


def missing_now(connection: Session, tables: Sequence[TableId]) -> dict[TableId, Finding]:
    """Return the tables that are not there (``SOURCE_TABLE_MISSING``)."""
    there = oids(connection, tables)
    return {table: _gone(table) for table in tables if table not in there}


def _gone(table: TableId) -> Finding:
    hint = f"If it was dropped: headrace source tables remove SOURCE {word(str(table))}"
    return Finding.error("SOURCE_TABLE_MISSING", f"There is no table {table}.", hint)


def rekeyed_now(connection: Session, schemas: Sequence[TableSchema]) -> dict[TableId, Finding]:
    """Return the tables whose primary key is another one than is captured (``SOURCE_KEY_CHANGED``)."""
    captured = {schema.table: schema for schema in schemas if not schema.declared}
    named = {oid: table for table, oid in oids(connection, list(captured)).items()}
    keys: dict[TableId, list[str]] = {}
    for row in rows(connection, _KEYS, list(named)):
        keys.setdefault(named[row["oid"]], []).append(row["name"])
    return {
        table: Finding.error(
            "SOURCE_KEY_CHANGED",
            f"The key of {table} is ({', '.join(key)}) now and was ({', '.join(captured[table].key)}).",
        )
        for table, key in keys.items()
        if set(key) != set(captured[table].key)
    }


def read_tables(
    connection: Session,
    tables: Sequence[TableId],
    declared: Keys,
    leave_out: LeftOut,
) -> list[TableSchema]:
    """Return the tables' schemas in the order asked for.

    ``extra["excluded"]`` names what is left out, ``extra["chosen"]`` which of it somebody chose;
    ``extra["order"]`` has of each key column its number, type and collation, and of a text also what
    :func:`~connectors.postgres.orders.text_orders` tells: so rows are ordered by it.

    Args:
        connection: To the database.
        tables: Which tables.
        declared: Keys that stand for the primary keys.
        leave_out: Columns that somebody has chosen to leave out.

    Raises:
        SourceError: When a table does not exist or has no usable key.
    """
    described, keys = _describe(connection, tables, leave_out, declared)
    texts = text_orders(connection, [columns[0]["oid"] for columns in described.values()])
    identifying = {(row["oid"], row["name"]) for of in described.values() for row in of if row["in_key"]}
    otherwise = compared_otherwise(connection, identifying)
    found: list[TableSchema] = []
    for table in tables:
        if table not in described:
            gone = _gone(table)
            raise SourceError(gone.message, code=gone.code, hint=gone.hint)
        columns = [_column(row, (row["oid"], row["name"]) in otherwise) for row in described[table]]
        left = tuple(
            row["name"] for row, column in zip(described[table], columns, strict=True) if column is None
        )
        key = keys[table]
        captured = tuple(column for column in columns if column)
        try:
            chosen = tuple(row["name"] for row in described[table] if row["chosen"])
            order = {
                row["name"]: row["ordered_by"] + texts.get((row["oid"], row["number"]), [])
                for row in described[table]
                if row["in_key"]
            }
            extra = {"excluded": left, "chosen": chosen, "order": [order.get(name) for name in key]}
            schema = TableSchema(table, captured, key, extra, declared=table in declared)
        except ValueError as error:
            raise SourceError(f"{error}.", code="SOURCE_NO_PRIMARY_KEY") from error
        found.append(schema)
    return found


def columns_left_out(
    connection: Session,
    tables: Sequence[TableId],
    leave_out: LeftOut,
    declared: Keys,
) -> Left:
    """Return per table the columns that cannot be captured, and why.

    The reason is one of :data:`LEFT_OUT` or, for a column that is captured, a sentence on which of its
    values do not arrive as they are.
    """
    described, _ = _describe(connection, tables, leave_out, declared)
    left: Left = {}
    for table, columns in described.items():
        for row in columns:
            if _column(row) is None:
                why = _why_left(row)
            elif row["generated"]:
                why = COMPUTED
            else:
                why = array_limit(row["element"], row["element_kind"]) if row["element"] else ""
            if why:
                left.setdefault(table, []).append((row["name"], row["native"], why))
    return left


def digits(
    connection: Session, tables: Sequence[TableId], leave_out: LeftOut, declared: Keys
) -> dict[TableId, dict[str, Digits]]:
    """Return the numerics of each table, captured or not, with their digits."""
    described, _ = _describe(connection, tables, leave_out, declared)
    found: dict[TableId, dict[str, Digits]] = {}
    for table, columns in described.items():
        numerics = [one for one in map(_column, columns) if one and one.type is LogicalType.NUMERIC]
        found[table] = {column.name: (column.precision, column.scale) for column in numerics}
    return found


def _located(
    connection: Session, statement: LiteralString, tables: Sequence[TableId]
) -> dict[TableId, DictRow]:
    found = rows(connection, statement, [t.schema for t in tables], [t.name for t in tables])
    return {TableId(row["schema"], row["name"]): row for row in found}


def _describe(
    connection: Session,
    tables: Sequence[TableId],
    leave_out: LeftOut,
    declared: Keys,
) -> tuple[dict[TableId, list[DictRow]], dict[TableId, tuple[str, ...]]]:
    located = oids(connection, tables)
    names = {oid: table for table, oid in located.items()}
    described: dict[TableId, list[DictRow]] = {}
    primary: defaultdict[TableId, list[str]] = defaultdict(list)
    for row in rows(connection, _KEYS, list(names)):
        primary[names[row["oid"]]].append(row["name"])
    keys = {table: tuple(declared.get(table, primary[table])) for table in tables}
    for row in rows(connection, _COLUMNS, list(names)):
        table = names[row["oid"]]
        row["in_key"] = row["name"] in keys[table]
        described.setdefault(table, []).append(row)
    for table, columns in described.items():
        numbers = {str(row["number"]): row["name"] for row in columns}
        chosen = leave_out.among(table, columns[0]["oid"], numbers)
        for row in columns:
            row["chosen"] = str(row["number"]) in chosen
        asked = all(_can_be_asked_by(row) for row in columns if row["in_key"])
        for row in columns:
            row["looked_up"] = row["stored"] and asked and not row["in_key"]
    return described, keys


def _can_be_asked_by(row: dict[str, Any]) -> bool:
    """Return whether rows can be asked for by the text that a record's key has of the column."""
    return row["element"] is None and row["type"] != "hstore" and not is_list(row["type"])


def _why_left(row: dict[str, Any]) -> str:
    if row["chosen"]:
        return CHOSEN
    if row["generated"]:
        return GENERATED
    name, kind, array = _named(row)
    if row["dimensions"] > 1:
        return UNFAITHFUL
    if not array and too_wide(name, row["typmod"]):
        return TOO_WIDE
    wanted = wants_full(name, kind, element=array, domain=row["domain"])
    return UNCHANGED_NULL if wanted and not row["full"] else UNFAITHFUL


def _named(row: dict[str, Any]) -> tuple[str, str, bool]:
    """Return name and kind of a column's type or, for an array, of its elements', and whether it is one."""
    if row["element"] is None:
        return row["type"], row["kind"], False
    return row["element"], row["element_kind"], True


def _column(row: dict[str, Any], otherwise: bool = False) -> Column | None:
    if row["chosen"] or (row["generated"] and not row["looked_up"]):
        return None
    name, kind, array = _named(row)
    whole = bool(row["full"]) or row["generated"]  # what is looked up is never left out as unchanged
    meaning = logical_type(name, kind, element=array, full=whole, typmod=row["typmod"], domain=row["domain"])
    if meaning is None or row["dimensions"] > 1:  # inner arrays arrive as NULLs or as Java object names
        return None
    precision, scale = numeric_digits(row["typmod"]) if meaning is LogicalType.NUMERIC else (None, None)
    column = Column(
        name=row["name"],
        type=meaning,
        dimensions=max(row["dimensions"], 1) if array else int(is_list(name)),
        nullable=not row["required"],
        native=row["native"],
        precision=precision,
        scale=scale,
        computed=row["generated"],
        type_name=name,
        compared_otherwise=otherwise,
    )
    return column if can_be_told(column, name) or not column.computed else None
