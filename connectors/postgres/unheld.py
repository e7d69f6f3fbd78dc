"""Values that one kind of sink or another cannot hold: counted in the data before they are met."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from psycopg import sql

from connectors.postgres.glance import Glances
from connectors.postgres.session import identifier, rows
from headrace.model.finding import Finding
from headrace.model.schema import TableId

__all__ = ["count_unheld"]

_COLUMNS = """
WITH RECURSIVE resolved AS (
    SELECT a.attnum, a.attname, a.atttypid AS type, a.atttypmod AS modifier
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT r.attnum, r.attname, t.typbasetype, greatest(r.modifier, t.typtypmod)
    FROM resolved r JOIN pg_type t ON t.oid = r.type WHERE t.typtype = 'd'
)
SELECT r.attname AS name, t.typname AS type, r.modifier
FROM resolved r JOIN pg_type t ON t.oid = r.type AND t.typtype <> 'd'
ORDER BY r.attnum
"""

_INFINITE = ("NOT isfinite({0})", "infinite")
_AMONG = ("'infinity' = ANY ({0}) OR '-infinity' = ANY ({0})", "infinite")
_KINDS = {
    **dict.fromkeys(("date", "timestamp", "timestamptz"), _INFINITE),
    **dict.fromkeys(("_date", "_timestamp", "_timestamptz"), _AMONG),
}
_LIMITED = {"numeric": ("{0} = 'NaN'", "NaN"), "_numeric": ("'NaN' = ANY ({0})", "NaN")}
"""Of columns with limited digits; without limits the lake keeps the number as text."""


def count_unheld(glances: Glances, table: TableId, left: Collection[str]) -> Iterator[Finding]:
    """Yield a warning for each column that holds such values, with how many; one when there was no answer.

    Args:
        glances: At the database's tables.
        table: Which table.
        left: Columns that are not captured.
    """
    asked = []
    for row in rows(glances.connection, _COLUMNS, table.schema, table.name):
        known = _LIMITED if row["type"] in _LIMITED and row["modifier"] >= 0 else _KINDS
        found = known.get(row["type"])
        if found is not None and row["name"] not in left:
            asked.append((row["name"], *found))
    if not asked:
        return
    counts = sql.SQL(", ").join(
        sql.SQL("count(*) FILTER (WHERE {}) AS {}").format(
            sql.SQL(condition).format(sql.Identifier(name)), sql.Identifier(name)
        )
        for name, condition, _ in asked
    )
    answer = glances.ask(sql.SQL("SELECT {} FROM {}").format(counts, identifier(table)))
    if isinstance(answer, str):
        names = ", ".join(name for name, _, _ in asked)
        message = f"{table}: values of {names} that not every sink can hold could not be counted: {answer}."
        yield Finding.warning("SOURCE_VALUES_UNSEEN", message)
        return
    for name, _, what in asked:
        if answer[name]:
            many = "1 value is" if answer[name] == 1 else f"{answer[name]} values are"
            yield Finding.warning(
                "SOURCE_VALUES_UNHELD",
                f"{table}: {many} {what} in column {name}. Elasticsearch and Redis keep it as text; a"
                " lake has none like it and sets the rows aside.",
                f"Add a lake with --set unheld.{table}.{name}=null, or =nearest.",
            )
