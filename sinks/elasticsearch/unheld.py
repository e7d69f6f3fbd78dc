"""Documents that a column of JSON cannot take: stored without it where the settings say so, and kept beside.

``flattened`` refuses a key that is there twice, a key with NUL or of many kilobytes, and depths beyond 100;
the row is refused with it. It is written once more then, with the nearest document or NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from msgspec.structs import replace

from headrace.model.change import Change
from headrace.model.outcome import Outcome, Rejected
from headrace.model.schema import TableSchema
from sinks.document import CONVERSION_ERRORS, exact, json_text
from sinks.elasticsearch.names import META_FIELD, field_of
from sinks.unheld import Policy, spelled

__all__ = ["MEMBER", "Unheld", "restored"]

MEMBER = "unheld"
"""Member of a document's own field with the documents that it could not take, as text, by column."""

_FIELD = re.compile("in field “([^”]+)”")
_CODE = "ES_VALUE_REFUSED"

Write = Callable[[Sequence[Change], Sequence[bytes]], list[Outcome]]
Stored = Callable[[Sequence[Change]], Mapping[str, Mapping[str, Any]]]


@dataclass(slots=True)
class _Row:
    change: Change
    row: dict[str, Any]
    kept: dict[str, str] = field(default_factory=dict)
    nulled: set[str] = field(default_factory=set)

    def written(self) -> tuple[Change, bytes]:
        beside = b',"%b":%b' % (MEMBER.encode(), orjson.dumps(self.kept))
        return replace(self.change, row=self.row, absent=frozenset()), beside


class Unheld:
    """What becomes of such documents of one table.

    Args:
        schema: The table.
        policies: Columns of documents that are not refused, and what becomes of them.
    """

    def __init__(self, schema: TableSchema, policies: Mapping[str, Policy]) -> None:
        self._columns = {
            field_of(column.name): (column, policies[column.name])
            for column in schema.columns
            if column.name in policies
        }

    def held(
        self, changes: Sequence[Change], outcomes: list[Outcome], stored: Stored, write: Write
    ) -> list[Outcome]:
        """Write refused rows once more, without what was refused; return the outcomes of all.

        Args:
            changes: What was applied.
            outcomes: What became of each.
            stored: Gives the stored rows of partial changes by the key's id.
            write: Applies changes, each with further members of its document's own field.
        """
        if not self._columns or not any(map(_refused, outcomes)):
            return outcomes
        outcomes = list(outcomes)
        rows = self._rows(changes, outcomes, stored)
        while again := [number for number in rows if self._relieved(rows[number], outcomes[number])]:
            wanted, beside = zip(*(rows[number].written() for number in again), strict=True)
            for number, outcome in zip(again, write(wanted, beside), strict=True):
                outcomes[number] = outcome
        return outcomes

    def _rows(
        self, changes: Sequence[Change], outcomes: Sequence[Outcome], stored: Stored
    ) -> dict[int, _Row]:
        refused = {n: change for n, change in enumerate(changes) if _refused(outcomes[n])}
        partial = [change for change in refused.values() if change.absent]
        before = stored(partial) if partial else {}
        rows = {}
        for number, change in refused.items():
            old = before.get(change.key.id, {}) if change.absent else {}
            if change.absent and not old:
                continue
            rows[number] = _Row(change, {**{name: old.get(name) for name in change.absent}, **change.row})
        return rows

    def _relieved(self, row: _Row, outcome: Outcome) -> bool:
        """Take out of a row what was refused; return whether to write it once more."""
        named = _FIELD.search(outcome.reason) if isinstance(outcome, Rejected) and _refused(outcome) else None
        found = self._columns.get(named[1].partition(".")[0]) if named else None
        if found is None or found[0].name in row.nulled:
            return False
        column, policy = found
        text = row.row[column.name]
        if column.name not in row.kept:
            try:
                row.kept[column.name] = spelled(column, text)
                nearer = json_text(exact(text, whole=False)) if policy is Policy.NEAREST else text
            except CONVERSION_ERRORS:
                return False
            if nearer != text:
                row.row[column.name] = nearer
                return True
        row.row[column.name] = None
        row.nulled.add(column.name)
        return True


def restored(row: dict[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the documents that are kept beside it."""
    kept: Mapping[str, str] = source.get(META_FIELD, {}).get(MEMBER, {})
    return row | {name: text for name, text in kept.items() if name in row} if kept else row


def _refused(outcome: Outcome) -> bool:
    return isinstance(outcome, Rejected) and outcome.code == _CODE
