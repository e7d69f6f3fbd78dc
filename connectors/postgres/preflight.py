"""What speaks for or against capturing tables, asked before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from psycopg.rows import DictRow

from connectors.base import Keys
from connectors.postgres.advice import briefly
from connectors.postgres.catalogue import (
    CHOSEN,
    GENERATED,
    LEFT_OUT,
    TOO_WIDE,
    UNCHANGED_NULL,
    columns_left_out,
    oids,
    read_tables,
)
from connectors.postgres.glance import Glances, read_typed
from connectors.postgres.keys import check_declared, check_primary
from connectors.postgres.large import read_toasted, too_large
from connectors.postgres.leaves import check_identity, check_leaves, full_identity, limits_of
from connectors.postgres.left_out import LeftOut
from connectors.postgres.money import check_money, read_amounts
from connectors.postgres.namesakes import with_namesakes
from connectors.postgres.replica_identity import with_bounds
from connectors.postgres.reread import why_unreadable
from connectors.postgres.rights import check_rights
from connectors.postgres.session import Session, quoted, rows
from connectors.postgres.spread import check_spread
from connectors.postgres.suspects import suspected
from connectors.postgres.tree import with_guards, with_leaves
from connectors.postgres.types import CLAIMED
from connectors.postgres.unheld import unheld
from headrace.model.finding import Finding, Severity
from headrace.model.pasted import remark
from headrace.model.schema import TableId

__all__ = ["check_tables"]

_GLANCES_S = 20.0
"""So long at most are values looked at, of all tables together."""
_NOBODYS = ("headrace", "information_schema", "pg_catalog", "pg_toast")

_TABLES = with_bounds(
    with_leaves(
        with_guards(
            with_namesakes("""
SELECT c.oid::bigint AS oid, c.relkind::text AS kind, c.relpersistence::text AS persistence,
       c.relispartition AS partition, c.relreplident::text AS identity,
       c.relrowsecurity AND NOT (r.rolsuper OR r.rolbypassrls
           OR (pg_has_role(c.relowner, 'USAGE') AND NOT c.relforcerowsecurity)) AS filtered,
       r.rolsuper OR pg_has_role(c.relowner, 'USAGE') AS owned, o.rolname::text AS owner,
       r.rolname::text AS role,
       CASE WHEN current_setting('server_version_num')::int < 160000 THEN r.rolinherit END AS inherits,
       has_table_privilege(c.oid, 'SELECT') AS readable,
       has_schema_privilege(c.relnamespace, 'USAGE') AS reachable,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS columns,
       namesakes_of(c) AS namesakes,
       p.indexrelid IS NOT NULL AS keyed, coalesce(k.condeferrable, false) AS deferrable,
       (SELECT (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.place)
                FROM unnest(u.indkey::int2[]) WITH ORDINALITY AS k(n, place)
                JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.n WHERE k.place <= u.indnkeyatts)
        FROM pg_index u WHERE u.indrelid = c.oid AND u.indisunique
          AND u.indisvalid AND u.indimmediate AND u.indpred IS NULL AND u.indexprs IS NULL
          AND NOT EXISTS (SELECT 1 FROM unnest((u.indkey::int2[])[:u.indnkeyatts - 1]) n JOIN pg_attribute a
                          ON a.attrelid = c.oid AND a.attnum = n WHERE NOT a.attnotnull)
        LIMIT 1) AS candidate,
       -- What an index only includes is no part of a key, nor of a replica identity. The first is number 0.
       (SELECT array_agg(a.attname::text) FROM unnest((p.indkey::int2[])[:p.indnkeyatts - 1]) n
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = n) AS key,
       (SELECT array_agg(a.attname::text) FROM pg_index x, unnest((x.indkey::int2[])[:x.indnkeyatts - 1]) n
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = n
        WHERE x.indrelid = c.oid AND x.indisreplident) AS identity_columns,
       -- From Postgres 18 on, updates and deletes fail while such a column is part of the identity.
       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> ''
             AND a.attnum > 0 AND NOT a.attisdropped AND current_setting('server_version_num')::int >= 180000
             ORDER BY a.attnum) AS generated,
       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated = 'v'
             AND NOT a.attisdropped ORDER BY a.attnum) AS virtual,
       ARRAY(SELECT format('%%I.%%I', n.nspname, k.relname)
             FROM pg_inherits h JOIN pg_class k ON k.oid = h.inhrelid
             JOIN pg_namespace n ON n.oid = k.relnamespace
             WHERE h.inhparent = c.oid AND c.relkind = 'r' ORDER BY 1) AS heirs,
       (SELECT coalesce(json_agg(json_build_array(format('%%I.%%I', n.nspname, l.relname), l.relreplident,
                   l.relpersistence, l.relkind,
                   (SELECT array_agg(a.attname)
                    FROM pg_index x, unnest((x.indkey::int2[])[:x.indnkeyatts - 1]) n
                    JOIN pg_attribute a ON a.attrelid = l.oid AND a.attnum = n
                    WHERE x.indrelid = l.oid AND x.indisreplident))
                   ORDER BY l.oid), '[]')
        FROM leaves_of(c) t JOIN pg_class l ON l.oid = t.relid
        JOIN pg_namespace n ON n.oid = l.relnamespace) AS leaves,
       (SELECT json_agg(json_build_array(format('%%I.%%I', n.nspname, l.relname), l.oid::bigint,
                   l.relreplident) ORDER BY l.oid)
        FROM leaves_of(c) t JOIN pg_class l ON l.oid = t.relid AND l.relkind = 'r'
        JOIN pg_namespace n ON n.oid = l.relnamespace
        WHERE NOT guarded(c, l) OR (l.relreplident = 'd' AND NOT keyed(l))) AS unguarded,
       bounds_of(c) AS bounds
FROM pg_class c
JOIN pg_roles o ON o.oid = c.relowner
JOIN pg_roles r ON r.rolname = current_user
LEFT JOIN pg_index p ON p.indrelid = c.oid AND p.indisprimary
LEFT JOIN pg_constraint k ON k.conindid = p.indexrelid AND k.contype = 'p' AND k.conrelid = c.oid
WHERE c.oid = ANY(%s::oid[])
""")
        )
    )
)


def check_tables(
    connection: Session,
    tables: Sequence[TableId],
    keys: Keys,
    leave_out: LeftOut,
    *,
    spread: bool = False,
    unread: Mapping[TableId, Finding] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Yield what speaks for or against each table, which the findings name.

    Args:
        connection: To the database.
        tables: Which.
        keys: Those that the user declares.
        leave_out: Columns that the user leaves out.
        spread: Whether the changes of each are to be spread over several partitions.
        unread: Tables whose rows are not to be looked at, each with the error that says why.
    """
    if not tables:
        yield Finding.error(
            "SOURCE_NO_TABLES", "No table was found to capture.", "Name them with --table schema.name."
        )
        return
    located = oids(connection, tables, of_any_kind=True)
    found = rows(connection, _TABLES, list(CLAIMED), list(located.values()))
    left = columns_left_out(connection, tables, leave_out, keys)
    fit: list[TableId] = []
    glances, sizes = Glances(connection, _GLANCES_S), Glances(connection, _GLANCES_S)
    amounts = read_amounts(connection)
    typed, toasted = read_typed(connection, tables), read_toasted(connection, located.values())
    described = {row["oid"]: {**row, "toasted": toasted.get(row["oid"])} for row in found}
    for table in tables:
        if table not in located:
            missing = Finding.error(
                "SOURCE_TABLE_MISSING",
                f"There is no table {table}.",
                "Names are case-sensitive: schema.table.",
            )
            yield replace(missing, table=table)
            continue
        row = described[located[table]]
        if row["kind"] not in ("r", "p") or table.schema in _NOBODYS:
            what = f"{table} is a view, a foreign table or the like; only tables can be captured."
            if table.schema in _NOBODYS:
                what = f"{table} is of a schema that Postgres, or Headrace, keeps for its own."
            yield replace(Finding.error("SOURCE_TABLE_KIND", what), table=table)
            continue
        troubles = [*_kind(table, row), *check_leaves(table, row), *check_rights(table, row)]
        troubles += _virtual(table, row)
        key = keys.get(table)
        troubles += check_primary(table, row) if key is None else check_declared(connection, table, row, key)
        troubles += check_identity(table, row, key or row["key"] or ())
        out = [name for name, _, why in left.get(table, ()) if why == CHOSEN]
        for name in leave_out.unknown(table, row["columns"], out):
            troubles.append(
                Finding.error("SOURCE_COLUMN_UNKNOWN", f"{table} has no column {name} to leave out.")
            )
        for name, native, why in left.get(table, []):
            troubles.append(_left_out(table, row, (name, native, why), name in (key or row["key"] or ())))
        told = left.get(table, [])
        not_captured = {name for name, _, why in told if why in LEFT_OUT}
        troubles += check_money(connection, table, not_captured, amounts)
        troubles += (
            [unread[table]]
            if table in unread
            else _values((glances, sizes), table, row, typed.get(table, ()), told, key or row["key"] or ())
        )
        yield from (replace(trouble, table=table) for trouble in troubles)
        if all(trouble.severity is not Severity.ERROR for trouble in troubles):
            fit.append(table)
    for schema in read_tables(connection, fit, keys, leave_out):
        yield Finding.ok("SOURCE_TABLE", f"{schema.table}: key ({', '.join(schema.key)})")
        if spread:
            full = full_identity(schema.table, described[located[schema.table]])
            yield from (replace(one, table=schema.table) for one in check_spread(connection, schema, full))
        if why := why_unreadable(schema):
            yield Finding.warning(
                "SOURCE_TABLE_REREAD",
                f"{schema.table}: a resnapshot cannot read it anew, for {why}.",
                "`headrace recover SOURCE` reads every table of the source.",
            )


def _values(
    glances: tuple[Glances, Glances],
    table: TableId,
    row: DictRow,
    columns: Sequence[DictRow],
    left: Sequence[tuple[str, str, str]],
    key: Sequence[str],
) -> Iterator[Finding]:
    """Yield what is told of the values that are captured, where they can be asked for.

    What is asked about sizes has time of its own: it reads large tables, and would leave none for the rest.
    """
    if _can_be_asked(row):
        excluded = {name for name, _, why in left if why in LEFT_OUT}
        captured = set(row["columns"]) - excluded
        values, sizes = glances
        yield from values.tell(table, suspected(table, columns, captured), unheld(table, columns, excluded))
        yield from sizes.tell(table, too_large(table, columns, captured, key, row["toasted"]))


def _can_be_asked(row: DictRow) -> bool:
    """Return whether a query of the table's rows is answered; what is in its way has been told."""
    told = row["readable"] and row["reachable"] and not row["filtered"]
    return told and all(kind == "r" for _, _, _, kind, _ in row["leaves"])


def _kind(table: TableId, row: DictRow) -> Iterator[Finding]:
    if row["persistence"] != "p":
        yield Finding.error(
            "SOURCE_TABLE_UNLOGGED",
            f"{table} is unlogged or temporary, so its changes are not in the WAL.",
            briefly(f"ALTER TABLE {table.quoted} SET LOGGED;", does="rewrites the table"),
        )
    elif row["partition"]:
        yield Finding.error(
            "SOURCE_TABLE_PARTITION",
            f"{table} is a partition.",
            "Capture the partitioned table it belongs to; changes of all partitions arrive under its name.",
        )
    for heir in row["heirs"]:
        yield Finding.error(
            "SOURCE_TABLE_INHERITED",
            f"{heir} inherits from {table}: its rows would be read with the table, their changes would not.",
            briefly(f"ALTER TABLE {heir} NO INHERIT {table.quoted};")
            + f"  -- or capture {remark(heir)} and leave {remark(str(table))} out",
        )
    known: dict[str, str] = {}
    for name in row["columns"]:
        twin = known.setdefault(name.lower(), name)
        if twin != name:
            yield Finding.error(
                "SOURCE_COLUMN_CASE",
                f"{table}: columns {twin} and {name} differ by case only, which the connector refuses.",
                briefly(f"ALTER TABLE {table.quoted} RENAME COLUMN {quoted(name)} TO {quoted(name + '_2')};"),
            )
    for name, (other, _) in (row["namesakes"] or {}).items():
        yield Finding.error(
            "SOURCE_TYPE_NAMESAKE",
            f"{table}: the type of column {name} has a namesake, {other}; the connector mixes them up and"
            " delivers other values.",
            f"Give {other}, a table or a type, another name.",
        )
    yield from _name(table)


def _name(table: TableId) -> Iterator[Finding]:
    """Yield why the connector cannot take the name of a table, or of its schema."""
    renamed = (
        f'ALTER SCHEMA {quoted(table.schema)} RENAME TO "…";',
        briefly(f'ALTER TABLE {table.quoted} RENAME TO "…";'),
    )
    for name, hint in zip((table.schema, table.name), renamed, strict=True):
        if '"' in name:
            said = f"The name of {table} holds a double quote, which the connector cannot take."
            yield Finding.error("SOURCE_TABLE_NAME", said, hint)
        if "''" in name or "``" in name:
            said = (
                f"The name of {table} holds two equal quotes in a row, and the connector tells no change of"
                " such a table: it takes them for one."
            )
            yield Finding.error("SOURCE_TABLE_NAME", said, hint)
        if all(letter <= " " or letter.isspace() for letter in name):
            said = f"The name of {table} has a part of blanks alone, which the connector leaves out."
            yield Finding.error("SOURCE_TABLE_NAME", said, hint)


def _virtual(table: TableId, row: DictRow) -> Iterator[Finding]:
    """Yield the statement of the application that Postgres refuses once the table is published."""
    if names := row["virtual"]:
        altered = f"ALTER TABLE {table.quoted} ALTER {quoted(names[0])} SET EXPRESSION AS (…);"
        unpublished = f"ALTER PUBLICATION headrace_SOURCE DROP TABLE ONLY {table.quoted};"
        yield Finding.warning(
            "SOURCE_COLUMN_VIRTUAL",
            f"{table}: Postgres refuses to give virtual columns ({', '.join(names)}) another expression while"
            " the table is published.",
            f"{briefly('BEGIN;', unpublished, altered, 'COMMIT;')} -- then: headrace source refresh SOURCE",
        )


def _left_out(table: TableId, row: DictRow, left: tuple[str, str, str], in_key: bool) -> Finding:
    name, native, why = left
    if why not in LEFT_OUT:
        return Finding.warning("SOURCE_COLUMN_LIMIT", f"{table}: column {name} ({native}): {why}.")
    if in_key and why == CHOSEN:
        return Finding.error(
            "SOURCE_COLUMN_KEY", f"Column {name} identifies the rows of {table}: it has to stay."
        )
    if why == CHOSEN:
        return Finding.ok("SOURCE_COLUMN_CHOSEN", f"{table}: column {name} is left out, as it was asked.")
    if in_key:
        return Finding.error(
            "SOURCE_KEY_TYPE",
            f"The key of {table} uses column {name}, whose values ({native}) the connector cannot deliver.",
        )
    if why == GENERATED:
        return Finding.warning(
            "SOURCE_COLUMN_GENERATED",
            f"{table}: generated column {name} ({native}) is not mirrored: only those are that are stored,"
            " and of a type that can be looked up as records would tell it.",
        )
    if why == UNCHANGED_NULL:
        full = full_identity(table, row)
        return Finding.warning(
            "SOURCE_COLUMN_UNCHANGED",
            f"{table}: column {name} ({native}) is not mirrored: when another column is updated, its large"
            " values would arrive as NULL"
            + ("." if full else f"; with REPLICA IDENTITY FULL, {limits_of(row).bar(None)}."),
            f"{full}  -- then it is" if full else "",
        )
    if why == TOO_WIDE:
        altered = f"ALTER TABLE {table.quoted} ALTER {quoted(name)} TYPE sparsevec(…);"
        return Finding.warning(
            "SOURCE_COLUMN_WIDE",
            f"{table}: column {name} ({native}) is not mirrored: vectors of more than 32,767 dimensions would"
            " arrive as NULL, and its type allows them.",
            f"{briefly(altered, does='rewrites the table')}  -- with the true number",
        )
    return Finding.warning(
        "SOURCE_COLUMN_TYPE",
        f"{table}: column {name} ({native}) is not mirrored; its type is not delivered faithfully.",
    )
