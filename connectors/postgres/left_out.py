"""Columns that somebody left out, known by their numbers since a look has seen them: names change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from connectors.base import Columns
from headrace.model.schema import TableId

__all__ = ["CHOSEN", "Number", "carried", "every_name", "numbers", "renamed"]

CHOSEN = "chosen"
"""Where the facts of a table tell which columns are left out."""
Number = tuple[TableId, int, int]
"""A column: its table, with the table's number, and its own."""


def carried(
    names: Collection[str], before: Mapping[str, Any] | None, now: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the table's number, and of each column that is left out its number and every name seen.

    Args:
        names: Those that were chosen.
        before: The facts of the look before.
        now: The catalogue's word.
    """
    oid, was = _known(names, before)
    if now["oid"] is None:  # it may come back under its name
        return {"oid": oid, "names": was}
    was = was if oid == now["oid"] else {}
    seen = {
        number: sorted({column[0], *was.get(number, ())})
        for number, column in (now["columns"] or {}).items()
        if column[0] in names or number in was
    }
    return {"oid": now["oid"], "names": {**was, **seen}}


def numbers(leave_out: Columns, facts: Mapping[str, Any]) -> frozenset[Number]:
    """Return which columns are left out by their numbers, as the facts of a look have them."""
    return frozenset(
        (table, oid, int(number))
        for table, names in leave_out.items()
        for oid, known in (_known(names, facts.get(table.quoted)),)
        for number in known
    )


def every_name(leave_out: Columns, facts: Mapping[str, Any]) -> Columns:
    """Return the names under which the log may tell of columns that are left out."""
    return {
        table: sorted({*names, *(name for seen in known.values() for name in seen)})
        for table, names in leave_out.items()
        for _, known in (_known(names, facts.get(table.quoted)),)
    }


def renamed(
    leave_out: Columns, tables: Mapping[TableId, Mapping[str, Any]], chosen: Mapping[str, Mapping[str, Any]]
) -> dict[TableId, tuple[str, ...]]:
    """Return under which names there are columns now that were left out under others.

    Args:
        leave_out: The names that were chosen.
        tables: What the catalogue says of the tables.
        chosen: Table → what of it is left out now.
    """
    found: dict[TableId, tuple[str, ...]] = {}
    for table, names in leave_out.items():
        there = tables[table]["columns"] or {} if table in tables else {}
        known = [there[number][0] for number in there if number in chosen[table.quoted][CHOSEN]["names"]]
        if again := tuple(name for name in known if name not in names):
            found[table] = again
    return found


def _known(names: Collection[str], facts: Mapping[str, Any] | None) -> tuple[int, dict[str, list[str]]]:
    if facts is None:
        return 0, {}
    if CHOSEN in facts:
        return facts[CHOSEN]["oid"], facts[CHOSEN]["names"]
    # An older version's look has noted nothing.
    columns = (facts["columns"] or {}).items()
    return facts["oid"] or 0, {number: [column[0]] for number, column in columns if column[0] in names}
