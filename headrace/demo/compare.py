"""Compares two sets of rows by content, every row in both directions, and names what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.demo.spelling import logical
from headrace.model.key import Key
from headrace.model.schema import TableSchema
from headrace.model.values import canonical, key_of

__all__ = ["SHOWN_KEYS", "Comparison", "Expected", "Found", "compare"]

SHOWN_KEYS = 20
"""How many keys of each kind of difference are named per table."""


@dataclass(frozen=True, slots=True)
class Found:
    """One row as a store gives it back.

    Args:
        address: Where it lies in the store: document id, cache key; None where rows have no address.
        row: Column name → value in the store's own spelling.
    """

    address: str | None
    row: Mapping[str, Any]


@dataclass(slots=True)
class Comparison:
    """What became of one table in one store.

    Args:
        store: The store's name.
        table: The table's name.
        expected: Rows in the original.
        found: Rows in the store.
        missing: Keys that only the original has.
        extra: Keys, or addresses, that only the store has, or has more than once.
        different: Key → the columns whose content differs; ``@address`` when it lies where nobody looks.
    """

    store: str
    table: str
    expected: int = 0
    found: int = 0
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    different: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Return whether nothing differs."""
        return not (self.missing or self.extra or self.different)

    def as_dict(self) -> dict[str, Any]:
        """Return counts, and the first keys of every kind of difference."""
        return {
            "store": self.store,
            "table": self.table,
            "expected": self.expected,
            "found": self.found,
            "missing": len(self.missing),
            "extra": len(self.extra),
            "different": len(self.different),
            "keys": {
                "missing": self.missing[:SHOWN_KEYS],
                "extra": self.extra[:SHOWN_KEYS],
                "different": {key: list(self.different[key]) for key in list(self.different)[:SHOWN_KEYS]},
            },
        }


class Expected:
    """The original rows of one table, kept as one fingerprint per column.

    A fingerprint is 64 bits of the value's canonical form, so that a table of any width fits in memory;
    two different values share one with a probability of 2⁻⁶⁴.
    """

    def __init__(self, schema: TableSchema, rows: Iterable[Mapping[str, Any]]) -> None:
        self.schema = schema
        self._prints = {
            key_of(schema, row).id: tuple(
                _print(canonical(column, row.get(column.name))) for column in schema.columns
            )
            for row in rows
        }

    def __len__(self) -> int:
        return len(self._prints)

    def __iter__(self) -> Iterator[str]:
        return iter(self._prints)

    def __contains__(self, key: str) -> bool:
        return key in self._prints

    def differing(self, key: str, prints: Sequence[int | None]) -> tuple[str, ...]:
        """Return the names of the columns whose fingerprint is not that of the original of the same key."""
        expected = self._prints[key]
        if expected == prints:
            return ()
        pairs = zip(self.schema.columns, expected, prints, strict=True)
        return tuple(column.name for column, mine, theirs in pairs if mine != theirs)


def compare(
    store: str,
    expected: Expected,
    found: Iterable[Found],
    address: Callable[[Key], str | None] = lambda _: None,
) -> Comparison:
    """Compare what a store holds of one table with the original.

    Args:
        store: Named in the result.
        expected: The original.
        found: Everything the store holds of the table.
        address: Where a reader would look for a key; None when the store has no addresses.
    """
    schema = expected.schema
    result = Comparison(store, schema.table.name, expected=len(expected))
    seen: set[str] = set()
    for item in found:
        result.found += 1
        row, prints = _read(schema, item.row)
        try:
            identity = key_of(schema, row)
        except (KeyError, ValueError):
            result.extra.append(item.address or repr(dict(item.row))[:100])
            continue
        key = identity.id
        if key not in expected or key in seen:
            result.extra.append(item.address or key)
            continue
        seen.add(key)
        wrong = expected.differing(key, prints)
        if item.address != address(identity):
            wrong = (*wrong, "@address")
        if wrong:
            result.different[key] = wrong
    result.missing = [key for key in expected if key not in seen]
    return result


def _read(schema: TableSchema, stored: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[int | None, ...]]:
    """Return the row without what cannot be read, and its fingerprints with None for that."""
    row: dict[str, Any] = {}
    prints: list[int | None] = []
    for column in schema.columns:
        try:
            value = logical(column, stored.get(column.name))
            prints.append(_print(canonical(column, value)))
        except (ValueError, KeyError, TypeError, ArithmeticError):
            prints.append(None)
            continue
        if column.name in stored:
            row[column.name] = value
    return row, tuple(prints)


def _print(value: Any) -> int:
    return hash(value if value is None or isinstance(value, str) else repr(value))
