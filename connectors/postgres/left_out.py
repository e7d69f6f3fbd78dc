"""Columns that somebody left out, known by their numbers since a look has seen them: names change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.base import Columns
from headrace.model.schema import TableId

__all__ = ["CHOSEN", "TAKEN_OUT", "LeftOut", "Names", "renamed", "taken_out"]

CHOSEN = "chosen"
"""Where the facts of a table tell which columns are left out."""
TAKEN_OUT = "taken_out"
"""Where the facts of the publication tell the same of tables that are not captured, and may come in again."""
Names = dict[str, list[str]]
"""Number of a column → each name that it was seen to have, the newest last."""
_GONE = "gone-"
"""So the key begins of a column whose table is gone; the table's number and its own follow."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What the last look knew of a table.

    Args:
        oid: The table's number.
        names: Of each column that was left out.
        columns: Number → name, of all columns.
    """

    oid: int = 0
    names: Names = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    def had(self, oid: int, number: str, name: str) -> bool:
        """Return whether a column was there under its name, and was not left out."""
        return oid == self.oid and self.columns.get(number) == name and number not in self.names

    def may_have(self, place: tuple[int, str], oid: int, name: str) -> bool:
        """Return whether a left-out column may have come back under a name that was not captured.

        One that went with its table may have any. One that had gone before has left its names to others; of a
        table that was made anew the numbers are others, so there the name decides.
        """
        if oid == self.oid or (place[0] == self.oid and place[1] in self.columns):
            return True
        return name not in {self.columns[number] for number in self.columns.keys() - self.names.keys()}

    def of_others(
        self, place: tuple[int, str], gone: Mapping[tuple[int, str], Sequence[str]]
    ) -> tuple[set[str], set[str]]:
        """Return the names that other columns had at the last look, and those with which others went."""
        had = {name for number, name in self.columns.items() if (self.oid, number) != place}
        newest = {seen[-1] for other, seen in gone.items() if other != place}
        return had, newest - {gone[place][-1]}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Which columns are left out.

    Args:
        chosen: By the names that somebody gave.
        known: What the last look knew of their tables.
    """

    chosen: Columns
    known: Mapping[TableId, _Known]

    @classmethod
    def of(cls, chosen: Columns, facts: Mapping[str, Any]) -> LeftOut:
        """Return what is left out, as the facts of a look have it."""
        return cls(chosen, {table: _known(table, names, facts) for table, names in chosen.items()})

    def among(self, table: TableId, oid: int, columns: Mapping[str, str]) -> Names:
        """Return which columns of a table are left out, with every name that each was seen to have.

        One that is gone, with its table or alone, may come back under any name that it had: a dump that is
        restored makes it anew, and a migration in several steps. Names that no other column had come first;
        of those the one that was chosen, then the newest. A column that was captured already is another one,
        whatever its name. Where a table that was made anew leaves open which of two it is, both are left
        out: what was shown cannot be taken back.

        Args:
            table: The table.
            oid: Its number now.
            columns: Number → name.
        """
        return self._divided(table, oid, columns)[0]

    def _divided(self, table: TableId, oid: int, columns: Mapping[str, str]) -> tuple[Names, Names]:
        """Return the columns that are left out now, and what is known of those that are gone."""
        names = self.chosen.get(table, ())
        known = self.known.get(table, _Known())
        was = {_place(key, known.oid): seen for key, seen in known.names.items()}
        stays = {number: seen for (its, number), seen in was.items() if its == oid and number in columns}
        gone = {place: seen for place, seen in was.items() if place[0] != oid or place[1] not in columns}
        found = {number: _with(columns[number], seen) for number, seen in stays.items()}
        found |= {n: [name] for n, name in columns.items() if name in names and n not in found}
        numbers = {name: number for number, name in columns.items() if not known.had(oid, number, name)}
        # What is not sure stays so: the column itself may come later.
        unsure = {n for n, its in stays.items() if any({*seen} & {*its} for seen in gone.values())}
        left: Names = {}
        for place, seen in gone.items():
            had = [*(name for name in seen if name in names), *reversed(seen)]
            mine = [name for name in had if name in numbers and known.may_have(place, oid, name)]
            there, went = known.of_others(place, gone)
            mine.sort(key=(there | went).__contains__)  # the others' own names come last, each in its order
            here = numbers[mine[0]] if mine else None
            if here is None or here in unsure or mine[0] in (went if place[0] == oid else there | went):
                left[_key(place, oid)] = seen
            if here is not None:
                found[here] = _with(columns[here], [*seen, *found.get(here, ())])
        return found, left

    def unknown(self, table: TableId, columns: Collection[str], out: Collection[str]) -> list[str]:
        """Return the chosen names that no column of a table has, or had before it was given another.

        Args:
            table: The table.
            columns: The names of its columns.
            out: Of those that are left out.
        """
        before = [seen for seen in self.known.get(table, _Known()).names.values() if {*seen} & {*out}]
        gone = {*self.chosen.get(table, ())} - {*columns}
        return sorted(name for name in gone if not any(name in seen for seen in before))

    def every_name(self) -> Columns:
        """Return the names under which the log may tell of columns that are left out."""
        return {
            table: sorted({*names, *(name for seen in self.known[table].names.values() for name in seen)})
            for table, names in self.chosen.items()
        }

    def carried(self, table: TableId, now: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the next look is to know of a table.

        Args:
            table: The table.
            now: The catalogue's word.
        """
        known = self.known[table]
        if now["oid"] is None:  # it may come back under its name
            return {"oid": known.oid, "names": known.names, "columns": known.columns}
        found, gone = self._divided(table, now["oid"], _named(now))
        return {"oid": now["oid"], "names": {**gone, **found}}


def taken_out(left: LeftOut, captured: Collection[TableId]) -> dict[str, dict[str, Any]]:
    """Return what is to be known of tables that are not captured now, should they come in again."""
    return {
        table.quoted: {"oid": known.oid, "names": known.names, "columns": known.columns}
        for table, known in left.known.items()
        if known.names and table not in captured
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


def _known(table: TableId, names: Collection[str], facts: Mapping[str, Any]) -> _Known:
    seen = facts.get(table.quoted)
    if seen is None:
        kept = facts.get("", {}).get(TAKEN_OUT, {}).get(table.quoted)
        return _Known(**kept) if kept else _Known()
    columns = _named(seen)
    if CHOSEN in seen:
        told = seen[CHOSEN]
        return _Known(told["oid"], told["names"], told.get("columns", columns))
    # An older version's look has noted nothing.
    return _Known(
        seen["oid"] or 0, {number: [name] for number, name in columns.items() if name in names}, columns
    )


def _place(key: str, oid: int) -> tuple[int, str]:
    """Return the table and the number of a column that is known by a key; ``oid`` is the last table's."""
    table, dash, number = key.removeprefix(_GONE).partition("-")
    return (int(table), number) if key.startswith(_GONE) and dash else (oid, key)


def _key(place: tuple[int, str], oid: int) -> str:
    table, number = place
    return number if table == oid else f"{_GONE}{table}-{number}"


def _named(facts: Mapping[str, Any]) -> dict[str, str]:
    return {number: column[0] for number, column in (facts["columns"] or {}).items()}


def _with(name: str, seen: Iterable[str]) -> list[str]:
    """Return names, each once, with one of them as the newest."""
    return [*dict.fromkeys(one for one in seen if one != name), name]
