"""Replica identities, of a table or of its partitions, that Postgres or the connector could not live with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg.rows import DictRow

from connectors.postgres.advice import briefly
from connectors.postgres.replica_identity import DEFAULT, FULL, Limits, alter, guarding
from headrace.model.finding import Finding
from headrace.model.schema import TableId

__all__ = ["check_identity", "check_leaves", "full_identity", "limits_of"]


def check_leaves(table: TableId, row: DictRow) -> Iterator[Finding]:
    """Yield the partitions whose changes are not in the log."""
    for name, _, persistence, kind, _ in row["leaves"]:
        if kind != "r":
            yield Finding.error(
                "SOURCE_TABLE_KIND",
                f"{table}: its partition {name} is a foreign table, whose changes are not in the WAL.",
            )
        elif persistence != "p":
            yield Finding.error(
                "SOURCE_TABLE_UNLOGGED",
                f"{table}: its partition {name} is unlogged, so its changes are not in the WAL.",
                briefly(f"ALTER TABLE {name} SET LOGGED;", does="rewrites the table"),
            )


def check_identity(table: TableId, row: DictRow, key: Sequence[str]) -> Iterator[Finding]:
    """Yield where Postgres would refuse updates and deletes once published, or would not name their rows."""
    own = [(table.quoted, row["identity"], row["identity_columns"])] if row["kind"] == "r" else []
    leaves = [(name, one, columns) for name, one, _, kind, columns in row["leaves"] if kind == "r"]
    named = {"f": row["generated"], "d": row["key"] or ()}
    for name, identity, columns in (*own, *leaves):
        inside = sorted(set(row["generated"]) & set(named.get(identity, columns or ())))
        if inside:
            mend = alter([name], DEFAULT, limits_of(row), row["key"] or ()) if identity != "d" else ""
            yield Finding.error(
                "SOURCE_IDENTITY_GENERATED",
                f"The replica identity of {name} has the generated column {inside[0]} in it: once published,"
                " updates and deletes would fail.",
                mend,
            )
    # Of a table without a key, or with a deferrable one, that has been told.
    for name, number, identity in row["unguarded"] or () if row["keyed"] and not row["deferrable"] else ():
        said = (
            f"{table}: no index of its partition {name} tells its rows apart at each moment: its own key is"
            " deferrable, or it has none"
        )
        fails = "; once published, updates and deletes would fail." if identity == "d" else "."
        mend = guarding(name, number, row["key"], limits_of(row))
        yield Finding.error("SOURCE_KEY_DEFERRABLE", f"{said}{fails}", mend)
    for name, identity, columns in leaves:
        mend = alter([name], DEFAULT, limits_of(row), row["key"] or ())
        if identity == "n":
            said = f"{table}: its partition {name} has REPLICA IDENTITY NOTHING: once published, updates and"
            yield Finding.error("SOURCE_IDENTITY_NOTHING", f"{said} deletes would fail.", mend)
        elif identity == "i" and not set(key) <= set(columns or ()):
            said = f"{table}: the replica identity of its partition {name} lacks key columns: deletes would"
            yield Finding.error("SOURCE_IDENTITY_INDEX", f"{said} not name the row.", mend)


def full_identity(table: TableId, row: DictRow) -> str:
    """Return what makes the log tell whole rows; empty where that would make updates and deletes fail."""
    return alter([leaf for leaf, *_ in row["leaves"]] or [table.quoted], FULL, limits_of(row))


def limits_of(row: DictRow) -> Limits:
    """Return what the replica identity of a table may be."""
    return Limits.of(row["generated"], row)
