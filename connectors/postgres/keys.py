"""What tells the rows of a table apart, and whether updates and deletes carry it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg.rows import DictRow

from connectors.postgres.advice import briefly, unique_index
from connectors.postgres.leaves import limits_of
from connectors.postgres.replica_identity import DEFAULT, alter, using_index
from connectors.postgres.session import Session, quoted, rows
from headrace.model.finding import Finding
from headrace.model.pasted import word
from headrace.model.schema import TableId

__all__ = ["check_declared", "check_primary"]

_COLUMNS = """
SELECT a.attname::text AS name, a.attnotnull AND NOT EXISTS (
    SELECT FROM pg_constraint k WHERE k.conrelid = a.attrelid AND k.contype = 'n'
      AND k.conkey = ARRAY[a.attnum] AND NOT k.convalidated) AS required
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
_INDEX = """
SELECT x.relname::text AS name FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
CROSS JOIN LATERAL (
    SELECT array_agg(a.attname::text) AS columns
    FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(n, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n WHERE k.place <= i.indnkeyatts
) AS k
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL AND k.columns @> %s::text[] AND k.columns <@ %s::text[]
LIMIT 1
"""


def check_primary(table: TableId, row: DictRow) -> Iterator[Finding]:
    """Yield what speaks against the primary key.

    Args:
        table: Which table.
        row: The catalogue's word on it.
    """
    if not row["keyed"]:
        candidate, named = row["candidate"], f"--key {word(f'{table}=…')}"
        keyed = f"ALTER TABLE {table.quoted} ADD PRIMARY KEY ({candidate});"
        column = f"{quoted(_free(row['columns']))} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        added = f"ALTER TABLE {table.quoted} ADD COLUMN {column};"
        yield Finding.error(
            "SOURCE_NO_PRIMARY_KEY",
            f"{table} has no primary key, so its rows cannot be told apart.",
            f"{briefly(keyed, does='builds an index')}  -- or declare them: {named}"
            if candidate
            else f"{briefly(added, does='rewrites the table')}"
            "  -- or ADD PRIMARY KEY (…) over the columns that identify a row",
        )
    elif row["deferrable"]:
        yield Finding.error(
            "SOURCE_KEY_DEFERRABLE",
            f"The primary key of {table} is deferrable: two rows may hold one key inside a transaction, and"
            " under REPLICA IDENTITY DEFAULT Postgres would refuse the application's own updates.",
            "Drop the constraint and add it again without DEFERRABLE; or declare another unique key: --key.",
        )
    if row["identity"] == "n":
        yield _nothing(table, _default(table, row))
    elif row["identity"] == "i" and row["keyed"] and not _within(row["key"], row["identity_columns"]):
        yield _lacking(table, _default(table, row))


def check_declared(
    connection: Session, table: TableId, row: DictRow, key: Sequence[str]
) -> Iterator[Finding]:
    """Yield what speaks against a key that the user declared.

    Args:
        connection: To the database.
        table: Which table.
        row: The catalogue's word on it.
        key: The columns.
    """
    known = {found["name"]: found["required"] for found in rows(connection, _COLUMNS, row["oid"])}
    missing = [name for name in key if name not in known]
    if missing or not key or len(set(key)) < len(key) or row["kind"] == "p":
        lacking = f"it has no column {', '.join(missing)}" if missing else "name each column once"
        why = "it is partitioned" if row["kind"] == "p" else lacking
        yield Finding.error("SOURCE_KEY_UNFIT", f"({', '.join(key)}) cannot be the key of {table}: {why}.")
        return
    listed = ", ".join(map(quoted, key))
    loose = [name for name in key if not known[name]]
    if loose:
        required = ", ".join(f"ALTER {quoted(name)} SET NOT NULL" for name in loose)
        yield Finding.error(
            "SOURCE_KEY_UNFIT",
            f"The declared key of {table} allows NULL in {', '.join(loose)}.",
            briefly(f"ALTER TABLE {table.quoted} {required};", does="reads the table"),
        )
    found = rows(connection, _INDEX, row["oid"], list(key), list(key))
    if not found:
        yield Finding.error(
            "SOURCE_KEY_UNFIT",
            f"No unique index of {table} is over ({', '.join(key)}), whole, valid and not deferrable.",
            unique_index(table.quoted, listed),
        )
        return
    mend = alter([table.quoted], using_index(quoted(found[0]["name"])), limits_of(row), key)
    if row["identity"] == "n":
        yield _nothing(table, mend)
    elif row["identity"] == "i" and not _within(list(key), row["identity_columns"]):
        yield _lacking(table, mend)
    elif row["identity"] == "d" and (row["deferrable"] or not _within(list(key), row["key"])):
        yield Finding.error(
            "SOURCE_IDENTITY_DEFAULT",
            f"{table} has REPLICA IDENTITY DEFAULT: updates and deletes would fail or lack the declared key.",
            mend,
        )


def _default(table: TableId, row: DictRow) -> str:
    return alter([table.quoted], DEFAULT, limits_of(row), row["key"] or ())


def _nothing(table: TableId, mend: str) -> Finding:
    said = f"{table} has REPLICA IDENTITY NOTHING: once published, updates and deletes would fail."
    return Finding.error("SOURCE_IDENTITY_NOTHING", said, mend)


def _lacking(table: TableId, mend: str) -> Finding:
    said = f"The replica identity of {table} lacks key columns: deletes would not name the row."
    return Finding.error("SOURCE_IDENTITY_INDEX", said, mend)


def _free(columns: Sequence[str]) -> str:
    """Return a name for a key that no column has."""
    taken = {name.lower() for name in columns}
    names = ("id", *(f"row_id{number or ''}" for number in range(len(taken))))
    return next(name for name in names if name not in taken)


def _within(key: object, identity: object) -> bool:
    return isinstance(key, list) and isinstance(identity, list) and set(key) <= set(identity)
