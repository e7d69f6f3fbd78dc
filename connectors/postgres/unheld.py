"""Values that one kind of sink or another cannot hold: counted in the data before they are met."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.rows import DictRow

from connectors.postgres.glance import Question
from headrace.model.finding import Finding
from headrace.model.schema import TableId

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["unheld"]

_INFINITE = ("NOT isfinite({0})", "infinite")
_AMONG = ("'infinity' = ANY ({0}) OR '-infinity' = ANY ({0})", "infinite")
_KINDS = {
    **dict.fromkeys(("date", "timestamp", "timestamptz"), _INFINITE),
    **dict.fromkeys(("_date", "_timestamp", "_timestamptz"), _AMONG),
}
_LIMITED = {"numeric": ("{0} = 'NaN'", "NaN"), "_numeric": ("'NaN' = ANY ({0})", "NaN")}
"""Of columns with limited digits; without limits the lake keeps the number as text."""


def unheld(table: TableId, columns: Sequence[DictRow], left: Collection[str]) -> Question | None:
    """Return what is asked of a table's rows: a warning for each column with such values, and how many.

    Args:
        table: Which table.
        columns: Its columns and their types.
        left: Columns that are not captured.
    """
    counted: list[tuple[str, LiteralString, str]] = []
    for row in columns:
        known = _LIMITED if row["type"] in _LIMITED and row["modifier"] >= 0 else _KINDS
        found = known.get(row["type"])
        if found is not None and row["name"] not in left:
            counted.append((row["name"], *found))
    if not counted:
        return None

    def tell(answer: Sequence[Any]) -> Iterator[Finding]:
        for number, (name, _, what) in zip(answer, counted, strict=True):
            if number:
                many = "1 value is" if number == 1 else f"{number} values are"
                yield Finding.warning(
                    "SOURCE_VALUES_UNHELD",
                    f"{table}: {many} {what} in column {name}. Elasticsearch and Redis keep it as text; a"
                    " lake has none like it and sets the rows aside.",
                    f"Add a lake with --set unheld.{table}.{name}=null, or =nearest.",
                )

    def unseen(why: str) -> Finding:
        names = ", ".join(name for name, _, _ in counted)
        message = f"{table}: values of {names} that not every sink can hold could not be counted: {why}."
        return Finding.warning("SOURCE_VALUES_UNSEEN", message)

    each = sql.SQL("count(*) FILTER (WHERE {})")
    asked = [each.format(sql.SQL(condition).format(sql.Identifier(name))) for name, condition, _ in counted]
    return Question(asked, tell, unseen)
