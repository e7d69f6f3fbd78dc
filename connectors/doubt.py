"""Values of the connector that may stand for others, and what the database itself says of them.

The connector tells an array of numeric with NaN or infinity in it, and an array of an enum or of ltree with
NULL in it, as NULL, and an infinite interval as zero. Of an array of several dimensions it tells an array of
NULLs or of Java's names for objects. Where it reads rows it tells dates before Christ as dates after, and
those of October 1582 up to ten days off. All of these are values, too; so the row is looked up by its key. So
is every row that has columns which the database computes and no record carries.

What is looked up is the value of now, and not of before the change: its transaction has to be visible, which
it is not while a commit waits for a standby. When the value was changed since, the change that did it is
behind this one in the log, and is looked up in its turn; a row that is gone by now is followed by its delete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from msgspec.structs import replace

from headrace.model.change import Change, Op
from headrace.model.key import Key
from headrace.model.outcome import Rejected
from headrace.model.schema import Column, LogicalType, TableSchema

__all__ = ["SURE_DAY", "UNREADABLE", "Ask", "Doubt", "can_be_asked", "cleared", "doubtful", "folded"]

Ask = Callable[[TableSchema, Sequence[Key], Sequence[str], Collection[int]], Mapping[Key, Mapping[str, Any]]]
"""Given a table, keys, columns, and the ids of transactions that have to be visible.

Returns, for rows that are there, the values of the columns: of a computed one, or a date, its logical value;
of an array its elements as texts, nested where it has several dimensions; of an interval ``infinity``,
``-infinity``, or None when it is finite. :data:`UNREADABLE` stands for a value that is none of its
column's type, and a column that the table has lost is left out.

Raises SinkError, with the table, when the database does not answer.
"""

_ZERO = "P0Y0M0DT0H0M0S"
_MISSING = object()
UNREADABLE = object()
"""What the database has instead of a value of the column's type: the column is another one by now."""
_LOST_ELEMENTS = (LogicalType.NUMERIC, LogicalType.ENUM)
_LOST_NATIVE = "ltree[]"
_TOLD_AS_TEXTS = (*_LOST_ELEMENTS, LogicalType.TEXT, LogicalType.UUID)
"""Types whose elements a record tells as the database does when it is asked."""
SURE_DAY = -141_416
"""26 October 1582: from this day on no calendar of Java's moves a date."""
_OBJECT = re.compile(r"\[+(?:L[\w.$]+;|[BCDFIJSZ])@[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Which values of a column may stand for others.

    Args:
        of: Whether a value does; a column that the record has not is asked about by ``_MISSING``.
        replaced: Whether what the database tells takes its place; else it only tells whether to refuse it.
    """

    of: Callable[[object], bool]
    replaced: bool = True


def folded(value: object) -> bool:
    """Return whether a value may be what the connector makes of an array of several dimensions."""
    if type(value) is not list or not value:
        return False
    first = value[0]
    if first is None:
        return value.count(None) == len(value)
    return type(first) is str and first[:1] == "[" and all(map(_is_object, value))


def _is_object(item: object) -> bool:
    return type(item) is str and _OBJECT.fullmatch(item) is not None


def can_be_asked(schema: TableSchema) -> bool:
    """Return whether rows can be asked for by their keys: arrays are not spelled there as Postgres does."""
    return not any(column.dimensions or column.native.endswith("hstore") for column in schema.key_columns)


@cache
def doubtful(columns: tuple[Column, ...]) -> Mapping[str, Doubt]:
    """Return column → which values of it may stand for others; nothing for most tables."""
    found: dict[str, Doubt] = {}
    for column in columns:
        if column.computed:
            found[column.name] = Doubt(lambda value: value is _MISSING)
        elif column.dimensions:
            if column.type in _LOST_ELEMENTS or column.native.endswith(_LOST_NATIVE):
                found[column.name] = Doubt(lambda value: value is None or folded(value))
            else:
                found[column.name] = Doubt(folded, replaced=column.type in _TOLD_AS_TEXTS)
        elif column.type is LogicalType.INTERVAL:
            found[column.name] = Doubt(lambda value: value == _ZERO)
        elif column.type is LogicalType.DATE:
            found[column.name] = Doubt(lambda value: type(value) is int and value < SURE_DAY)
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
    names = [name for name, doubt in doubts.items() if any(doubt.of(_told(c, name)) for c in unsure)]
    if not can_be_asked(schema):
        why = (
            f"a value of {', '.join(names)} may stand for another, and no row can be asked for by such a key"
        )
        left = [change for change in known if change.key not in asked]
        return left, dict.fromkeys(asked, Rejected("VALUE_IN_DOUBT", why))
    seen = {o.tx for o in (change.origin for change in unsure) if o.tx is not None and not o.snapshot}
    found = ask(schema, list(asked), names, seen)
    bad: dict[Key, Rejected] = {}
    told: list[Change] = []
    for change in known:
        values = found.get(change.key) if change.key in asked else None
        try:
            told.append(change if values is None else _with(change, doubts, values))
        except ValueError as error:
            bad[change.key] = Rejected("VALUE_IN_DOUBT", str(error))
    return told, bad


def _told(change: Change, name: str) -> object:
    return change.row.get(name, _MISSING)


def _in_doubt(change: Change, doubts: Mapping[str, Doubt]) -> bool:
    return any(doubt.of(_told(change, name)) for name, doubt in doubts.items())


def _with(change: Change, doubts: Mapping[str, Doubt], values: Mapping[str, Any]) -> Change:
    row = dict(change.row)
    for name, doubt in doubts.items():
        if name not in values or not doubt.of(_told(change, name)):
            continue
        value = values[name]
        if value is None and name in row:
            continue  # what the record tells is so
        if value is UNREADABLE:
            raise ValueError(f"column “{name}” holds no value of the type that it had")
        if isinstance(value, list) and any(isinstance(item, list) for item in value):
            raise ValueError(f"column “{name}” holds an array of several dimensions, which is not delivered")
        if doubt.replaced:
            row[name] = value
    return replace(change, row=row)
