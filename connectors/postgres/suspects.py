"""Values that the connector would deliver as others, without a trace; looked for before they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import psycopg
from psycopg import sql

from connectors.postgres.session import Session, identifier, rows
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId

__all__ = ["check_values"]

_PATIENCE_MS = 3_000

_COLUMNS = """
SELECT a.attname AS name, t.typname AS type, t.typcategory::text AS category
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""

_DATE = "isfinite({0}) AND ({0} < '0001-01-01' OR {0} BETWEEN '1582-10-05' AND '1582-10-14')"
_SUSPECTS = {
    "date": (_DATE, "a date before Christ or of 5 to 14 October 1582, which a snapshot delivers as another"),
    "interval": ("NOT isfinite({0})", "an infinite interval, which arrives as zero"),
}
_ARRAY = ("array_ndims({0}) > 1", "an array of several dimensions, whose elements arrive as NULL")


def check_values(connection: Session, table: TableId, left: Collection[str]) -> Iterator[Finding]:
    """Yield an error for each column that holds such a value, a warning when there was no time to look.

    Args:
        connection: To the database.
        table: Which table.
        left: Columns that are not captured.
    """
    suspects = []
    for row in rows(connection, _COLUMNS, table.quoted):
        found = _ARRAY if row["category"] == "A" else _SUSPECTS.get(row["type"])
        if found is not None and row["name"] not in left:
            suspects.append((row["name"], *found))
    if not suspects:
        return
    asked = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(
            sql.SQL("bool_or({}) AS {}").format(
                sql.SQL(condition).format(sql.Identifier(name)), sql.Identifier(name)
            )
            for name, condition, _ in suspects
        ),
        identifier(table),
    )
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {_PATIENCE_MS}")
            (answer,) = rows(connection, asked)
    except psycopg.errors.QueryCanceled:
        names = ", ".join(name for name, _, _ in suspects)
        message = (
            f"{table}: not all values of {names} could be looked at for what the connector cannot deliver."
        )
        yield Finding(
            Severity.WARNING, "SOURCE_VALUES_UNSEEN", message, "See docs/types.md for which those are."
        )
        return
    for name, _, what in suspects:
        if answer[name]:
            message = f"{table}: column {name} holds {what}."
            yield Finding(
                Severity.ERROR, "SOURCE_VALUES", message, "Correct such values, or leave the table out."
            )
