"""Values that the connector would deliver as others, without a trace; looked for before they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from psycopg import sql

from connectors.doubt import can_be_asked
from connectors.postgres.glance import Glances
from connectors.postgres.session import Session, identifier, rows
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId, TableSchema

__all__ = ["RESOLVED", "check_values", "values_now"]

RESOLVED = """
WITH RECURSIVE resolved AS (
    SELECT a.attnum, a.attname, a.atttypid AS type
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
  UNION ALL
    SELECT r.attnum, r.attname, t.typbasetype FROM resolved r JOIN pg_type t ON t.oid = r.type
    WHERE t.typtype = 'd'
)
"""
"""Begins a statement: a table's columns with their types, and with what these are domains of."""
_COLUMNS = (
    RESOLVED
    + """
SELECT r.attname AS name, coalesce(e.typname, t.typname) AS type, t.typcategory = 'A' AS list
FROM resolved r JOIN pg_type t ON t.oid = r.type AND t.typtype <> 'd'
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
ORDER BY r.attnum
"""
)

_DATE = "isfinite({0}) AND ({0} < '0001-01-01' OR {0} BETWEEN '1582-10-05' AND '1582-10-14')"
_SUSPECTS = {
    "date": (_DATE, "a date before Christ or of 5 to 14 October 1582, which a snapshot delivers as another"),
}
_LATER = "isfinite({0}) AND {0} < '1581-01-01 BC'"
"""A date that is told as one of a time in which nothing is in doubt."""
_ARRAY = ("array_ndims({0}) > 1", "an array of several dimensions, whose elements arrive as NULL")
_ANY = "EXISTS (SELECT FROM unnest({{0}}) AS one WHERE isfinite(one) AND ({0}))"
_GAP = _ANY.format("one < '0001-01-01' OR one >= '1582-10-05' AND one < '1582-10-15'")
_INSIDE = "an array with a time before Christ or of 5 to 14 October 1582 in it, which arrives as another"
_SUSPECT_ELEMENTS = {
    "date": (_GAP, _INSIDE),
    "timestamp": (
        _ANY.format("one < '1582-10-15'"),
        "an array with a time before 15 October 1582 in it, which arrives as another",
    ),
    "timestamptz": (_GAP, _INSIDE),
}
_UNSEEN = {"date": (_LATER, _SUSPECTS["date"][1])}
_UNSEEN_ELEMENTS = dict.fromkeys(_SUSPECT_ELEMENTS, (_ANY.format("one < '1581-01-01 BC'"), _INSIDE))


def check_values(
    glances: Glances, table: TableId, captured: Collection[str], in_doubt: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield an error for each column that holds such a value, a warning when there was no answer.

    Args:
        glances: At the database's tables.
        table: Which table.
        captured: Columns that are captured.
        in_doubt: Those whose values are looked up, or set aside by name, when a record shows that they are in
            doubt (:mod:`connectors.doubt`); of these only values are told that no record shows.
    """
    suspects = []
    for row in rows(glances.connection, _COLUMNS, table.schema, table.name):
        if row["name"] not in captured:
            continue
        shown = row["name"] in in_doubt
        if row["list"] and not shown:
            suspects.append((row["name"], *_ARRAY))
        known = (
            (_UNSEEN_ELEMENTS if shown else _SUSPECT_ELEMENTS)
            if row["list"]
            else (_UNSEEN if shown else _SUSPECTS)
        )
        if found := known.get(row["type"]):
            suspects.append((row["name"], *found))
    if not suspects:
        return
    asked = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(
            sql.SQL("bool_or({}) AS {}").format(
                sql.SQL(condition).format(sql.Identifier(name)), sql.Identifier(str(number))
            )
            for number, (name, condition, _) in enumerate(suspects)
        ),
        identifier(table),
    )
    answer = glances.ask(asked)
    if isinstance(answer, str):
        names = ", ".join(dict.fromkeys(name for name, _, _ in suspects))
        message = (
            f"{table}: not all values of {names} could be looked at for what the connector cannot deliver:"
            f" {answer}."
        )
        yield Finding.warning("SOURCE_VALUES_UNSEEN", message, "See docs/types.md for which those are.")
        return
    for number, (name, condition, what) in enumerate(suspects):
        if answer[str(number)]:
            message = f"{table}: column {name} holds {what}."
            those = sql.SQL(condition).format(sql.Identifier(name))
            seen = sql.SQL("SELECT * FROM {} WHERE {}").format(identifier(table), those).as_string()
            mend = "correct these, or leave out the table, or the column if it is none of the key"
            yield Finding.error("SOURCE_VALUES", message, f"{seen}  -- {mend}")


def values_now(connection: Session, tables: Iterable[TableSchema]) -> dict[TableId, Finding]:
    """Return the tables that hold such values and would tell others, with the first column that does."""
    found: dict[TableId, Finding] = {}
    for schema in tables:
        shown = schema.by_name.keys() - set(schema.key) if can_be_asked(schema) else ()
        for finding in check_values(Glances(connection), schema.table, schema.by_name, shown):
            if finding.severity is Severity.ERROR:
                found.setdefault(schema.table, finding)
    return found
