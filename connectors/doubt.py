"""Values of the connector that may stand for others, and what the database itself says of them.

The connector tells an array of numeric with NaN or infinity in it, and an array of an enum or of ltree with
NULL in it, as NULL, and an infinite interval as zero. NULL and zero are values, too; so the row is looked up
by its key. So is every row that has columns which the database computes and no record carries.

What is looked up is the value of now, and not of before the change: its transaction has to be visible, which
it is not while a commit waits for a standby. When the value was changed since, the change that did it is
behind this one in the log, and is looked up in its turn; a row that is gone by now is followed by its delete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec.structs import replace

from headrace.model.change import Change, Op
from headrace.model.key import Key
from headrace.model.outcome import Rejected
from headrace.model.schema import Column, LogicalType, TableSchema

__all__ = ["UNREADABLE", "Ask", "cleared", "doubtful"]

Ask = Callable[[TableSchema, Sequence[Key], Sequence[str], Collection[int]], Mapping[Key, Mapping[str, Any]]]
"""Given a table, keys, columns, and the ids of transactions that have to be visible.

Returns, for rows that are there, the values of the columns: of a computed one its logical value; of an array
its elements as texts, nested where it has several dimensions; of an interval ``infinity``, ``-infinity``, or
None when it is finite. :data:`UNREADABLE` stands for a value that is none of its column's type, and a column
that the table has lost is left out.

Raises SinkError, with the table, when the database does not answer.
"""

_ZERO = "P0Y0M0DT0H0M0S"
_MISSING = object()
UNREADABLE = object()
"""What the database has instead of a value of the column's type: the column is another one by now."""
_LOST_ELEMENTS = (LogicalType.NUMERIC, LogicalType.ENUM)
_LOST_NATIVE = "ltree[]"


@cache
def doubtful(columns: tuple[Column, ...]) -> Mapping[str, object]:
    """Return column → the value of it that may stand for another; nothing for most tables."""
    found: dict[str, object] = {}
    for column in columns:
        if column.computed:
            found[column.name] = _MISSING
            continue
        lost = column.type in _LOST_ELEMENTS or column.native.endswith(_LOST_NATIVE)
        if column.dimensions and lost:
            found[column.name] = None
        elif column.type is LogicalType.INTERVAL:
            found[column.name] = _ZERO
    return found


def cleared(
    schema: TableSchema, changes: Iterable[Change], ask: Ask
) -> tuple[list[Change], dict[Key, Rejected]]:
    """Return the changes with the values that the database has; of those in doubt that it cannot tell, why.

    The database is asked once, and not at all when no value is in doubt.

    Raises:
        SinkError: When it does not answer; the table is named.
    """
    doubts = doubtful(schema.columns)
    known = list(changes)
    unsure = [change for change in known if change.op is Op.UPSERT and _in_doubt(change, doubts)]
    if not unsure:
        return known, {}
    asked = {change.key for change in unsure}
    seen = {o.tx for o in (change.origin for change in unsure) if o.tx is not None and not o.snapshot}
    found = ask(schema, list(asked), list(doubts), seen)
    bad: dict[Key, Rejected] = {}
    told: list[Change] = []
    for change in known:
        values = found.get(change.key) if change.key in asked else None
        try:
            told.append(change if values is None else _with(change, doubts, values))
        except ValueError as error:
            bad[change.key] = Rejected("VALUE_IN_DOUBT", str(error))
    return told, bad


def _in_doubt(change: Change, doubts: Mapping[str, object]) -> bool:
    row = change.row
    return any(row.get(name, _MISSING) == value for name, value in doubts.items())


def _with(change: Change, doubts: Mapping[str, object], values: Mapping[str, Any]) -> Change:
    row = dict(change.row)
    for name, doubt in doubts.items():
        if name not in values or row.get(name, _MISSING) != doubt:
            continue
        value = values[name]
        if value is None and name in row:
            continue  # what the record tells is so
        if value is UNREADABLE:
            raise ValueError(f"column “{name}” holds no value of the type that it had")
        if isinstance(value, list) and any(isinstance(item, list) for item in value):
            raise ValueError(f"column “{name}” holds an array of several dimensions, which is not delivered")
        row[name] = value
    return replace(change, row=row)
