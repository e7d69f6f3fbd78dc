"""What two looks at the catalogue mean for what is mirrored of one table."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from connectors.watch import Trouble
from headrace.model.schema import TableSchema

__all__ = ["VERSION", "changed", "lacking", "unlike_registered"]

_NAME, _NATIVE, _TYPE, _GENERATED, _VERSION, _MISSING, _DEFAULT, _SAID = range(8)
VERSION = _VERSION
"""Where a column's facts tell which transaction wrote its row of the catalogue."""
_COMPUTED = "column {name} is computed by the database now, and no record carries it"
_RETYPED = "column {name} is of another type: {old} became {new}"
Table = Mapping[str, Any]


def unlike_registered(schema: TableSchema, now: Table) -> Iterator[Trouble]:
    """Yield, where there is no look before, what became of columns between registration and this look."""
    for column in (now["columns"] or {}).values():
        known = schema.by_name.get(column[_NAME])
        if known is None:
            continue
        if column[_GENERATED] and not known.computed:
            yield Trouble(schema.table, "COLUMN_RETYPED", True, _COMPUTED.format(name=known.name))
        elif _bare(known.native) != _bare(column[_NATIVE]):
            what = _RETYPED.format(name=known.name, old=known.native, new=column[_NATIVE])
            yield Trouble(schema.table, "COLUMN_RETYPED", True, what)


def _bare(native: str) -> str:
    """Return a type's name without its modifier, and as every session spells it."""
    return re.sub(r'\([^)]*\)|"', "", native).rpartition(".")[2]


def lacking(schema: TableSchema, now: Table) -> list[str]:
    """Return the captured columns that the table does not have."""
    there = {column[_NAME] for column in (now["columns"] or {}).values()}
    return sorted(set(schema.by_name) - there)


def changed(schema: TableSchema, before: Table, now: Table) -> Iterator[Trouble]:
    """Yield what happened to the table's columns and their types between two looks."""
    captured = set(schema.by_name)
    was, are = before["columns"] or {}, now["columns"] or {}
    places = {column[_NAME]: number for number, column in was.items()}
    files = {oid: unit["file"] for oid, unit in (before["units"] or {}).items()}
    moved = [
        oid for oid, unit in (now["units"] or {}).items() if files.get(oid, unit["file"]) != unit["file"]
    ]
    for number, column in are.items():
        name = column[_NAME]
        if name in captured and name in before.get("lacking", ()):
            what = f"column {name} was gone for a while, and records of then lack its values"
            yield Trouble(schema.table, "COLUMN_AWAY", True, what)
        if name not in captured or name not in places:
            continue
        old = was[places[name]]
        if places[name] != number:
            yield Trouble(schema.table, "COLUMN_ANEW", True, f"column {name} is another one of the same name")
        if column[_GENERATED] and not old[_GENERATED]:
            yield Trouble(schema.table, "COLUMN_RETYPED", True, _COMPUTED.format(name=name))
        elif old[_TYPE] != column[_TYPE]:
            what = _RETYPED.format(name=name, old=old[_NATIVE], new=column[_NATIVE])
            yield Trouble(schema.table, "COLUMN_RETYPED", True, what)
        elif not moved and _taken_back(old, column):
            what = f"column {name} may have had another name or type for a while"
            yield Trouble(schema.table, "COLUMN_AWAY", True, what)
    yield from _labels(schema, captured, before, now)
    yield from _renamed(schema, before, now)
    if moved:
        yield from _rewritten(schema, was, are)


def _rewritten(schema: TableSchema, was: Table, are: Table) -> Iterator[Trouble]:
    """Yield when the rows were rewritten, and values of captured columns with them."""
    numbers = [
        number
        for number, column in are.items()
        if column[_NAME] in schema.by_name and number in was and _touched(was[number], column)
    ]
    # A store may be unable to take them as it is: reading them anew alone does not help.
    counted = [
        _RETYPED.format(name=are[number][_NAME], old=was[number][_NATIVE], new=are[number][_NATIVE])
        for number in numbers
        if are[number][_NAME] in schema.digits and was[number][_NATIVE] != are[number][_NATIVE]
    ]
    if counted:
        yield Trouble(schema.table, "COLUMN_RETYPED", True, "; ".join(counted))
    elif numbers:
        what = f"its rows were rewritten and column {', '.join(are[n][_NAME] for n in numbers)} with them"
        yield Trouble(schema.table, "TABLE_REWRITTEN", True, what)


def _taken_back(before: list[Any], now: list[Any]) -> bool:
    """Return whether a column's row in the catalogue was written anew and says the same.

    A new default writes it twice. Of a column with rights of its own nothing is told: giving one that is
    there writes it, too.
    """
    if before[_VERSION] == now[_VERSION] or before[_DEFAULT] != now[_DEFAULT]:
        return False
    # Facts of an older version do not tell what the row says.
    return len(before) > _SAID and before[_SAID] is not None and before[_SAID] == now[_SAID]


def _labels(schema: TableSchema, captured: Collection[str], before: Table, now: Table) -> Iterator[Trouble]:
    labels = now["labels"] or {}
    for place, old in (before["labels"] or {}).items():
        name = place.rpartition(" ")[0]
        if name not in captured or place not in labels:
            continue
        label, version, order = old if isinstance(old, list) else (old, None, None)  # an older version's
        is_now, version_now, order_now = labels[place]
        if is_now != label:
            what = f"the label {label} of column {name} is {is_now} now, in every row"
            yield Trouble(schema.table, "LABEL_RENAMED", True, what)
        elif version is not None and version != version_now and order == order_now:
            what = f"the label {label} of column {name} was another one for a while"
            yield Trouble(schema.table, "LABEL_RENAMED", True, what)


def _renamed(schema: TableSchema, before: Table, now: Table) -> Iterator[Trouble]:
    """Yield when the table had another name, or another schema, in between: its row type had it, too.

    Its schema's name may have been another one instead. Of a schema with rights of its own nothing is told:
    giving one that is there writes its row, too.
    """
    for row, what in (("row_type", "its name"), ("schema_row", "its schema's name")):
        old, new = before.get(row), now[row]
        if old and new and old[0] != new[0] and old[1] == new[1]:
            said = f"{what} was another one for a while, and nobody was told what changed meanwhile"
            yield Trouble(schema.table, "TABLE_RENAMED", True, said)


def _touched(before: list[Any], now: list[Any]) -> bool:
    """Return whether a rewriting of the table may have given the column's values another form."""
    if before[_VERSION] == now[_VERSION]:
        return False
    # VACUUM FULL and their like write out defaults that were not yet, which shows in the column's row.
    # A new type makes the default anew.
    cleared = before[_MISSING] and not now[_MISSING]
    return not (cleared and now[_DEFAULT] is not None and before[_DEFAULT] == now[_DEFAULT])
