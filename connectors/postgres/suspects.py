"""Values that the connector would deliver as others, without a trace; looked for before they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.rows import DictRow

from connectors.doubt import can_be_asked
from connectors.postgres.glance import Glances, Question, read_typed
from connectors.postgres.session import Session, identifier
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId, TableSchema

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["suspected", "values_now"]

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


def suspected(
    table: TableId, columns: Sequence[DictRow], captured: Collection[str], in_doubt: Collection[str] = ()
) -> Question | None:
    """Return what is asked of a table's rows: an error for each column that holds such a value.

    Args:
        table: Which table.
        columns: Its columns and their types.
        captured: Columns that are captured.
        in_doubt: Those whose values are looked up, or set aside by name, when a record shows that they are in
            doubt (:mod:`connectors.doubt`); of these only values are told that no record shows.
    """
    suspects: list[tuple[str, LiteralString, str]] = []
    for row in columns:
        if row["generated"] or row["name"] not in captured:
            continue
        shown = row["name"] in in_doubt
        if row["list"] and not shown:
            suspects.append((row["name"], *_ARRAY))
        known = (
            (_UNSEEN_ELEMENTS if shown else _SUSPECT_ELEMENTS)
            if row["list"]
            else (_UNSEEN if shown else _SUSPECTS)
        )
        if found := known.get(row["element"] or row["type"]):
            suspects.append((row["name"], *found))
    if not suspects:
        return None
    conditions = [sql.SQL(condition).format(sql.Identifier(name)) for name, condition, _ in suspects]

    def tell(answer: Sequence[Any]) -> Iterator[Finding]:
        for held, those, (name, _, what) in zip(answer, conditions, suspects, strict=True):
            if held:
                message = f"{table}: column {name} holds {what}."
                seen = sql.SQL("SELECT * FROM {} WHERE {}").format(identifier(table), those).as_string()
                mend = "correct these, or leave out the table, or the column if it is none of the key"
                yield Finding.error("SOURCE_VALUES", message, f"{seen}  -- {mend}")

    def unseen(why: str) -> Finding:
        names = ", ".join(dict.fromkeys(name for name, _, _ in suspects))
        message = (
            f"{table}: not all values of {names} could be looked at for what the connector cannot deliver:"
            f" {why}."
        )
        return Finding.warning("SOURCE_VALUES_UNSEEN", message, "See docs/types.md for which those are.")

    return Question([sql.SQL("bool_or({})").format(condition) for condition in conditions], tell, unseen)


def values_now(connection: Session, tables: Sequence[TableSchema]) -> dict[TableId, Finding]:
    """Return the tables that hold such values and would tell others, with the first column that does."""
    found: dict[TableId, Finding] = {}
    columns = read_typed(connection, [schema.table for schema in tables])
    glances = Glances(connection)
    for schema in tables:
        shown = schema.by_name.keys() - set(schema.key) if can_be_asked(schema) else ()
        question = suspected(schema.table, columns.get(schema.table, ()), schema.by_name, shown)
        for finding in glances.tell(schema.table, question):
            if finding.severity is Severity.ERROR:
                found.setdefault(schema.table, finding)
    return found
