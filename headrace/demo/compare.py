"""Compares two sets of rows by content, every row in both directions, and names what differs."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.demo.spelling import logical_reader
from headrace.model.key import Key
from headrace.model.schema import TableSchema
from headrace.model.values import canonical_reader, key_reader

__all__ = ["SHOWN_KEYS", "Comparison", "Expected", "Found", "compare"]

SHOWN_KEYS = 20
"""How many keys of each kind of difference are named per table."""

_WITHOUT_REFERENCES = 2
"""Format of ``marshal`` in which equal values are equal bytes, whoever else refers to them."""


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
        key_in = key_reader(schema)
        spelled = [(column.name, canonical_reader(column)) for column in schema.columns]
        self._prints = {
            key_in(row).id: tuple([_print(canonical, row.get(name)) for name, canonical in spelled])
            for row in rows
        }
        self._proven: dict[int, Key] = {}

    def proven(self, spelling: int | None) -> Key | None:
        """Return the key of a row whose very spelling was found to be equal before."""
        return self._proven.get(spelling) if spelling is not None else None

    def prove(self, spelling: int | None, key: Key) -> None:
        """Remember how a row is spelled that is equal to the original of its key."""
        if spelling is not None:
            self._proven[spelling] = key

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
    read = _Reader(expected.schema)
    result = Comparison(store, expected.schema.table.name, expected=len(expected))
    seen: set[str] = set()
    for item in found:
        result.found += 1
        spelling = _spelling(item.row)
        identity, prints = expected.proven(spelling), None
        if identity is None:
            try:
                identity, prints = read(item.row)
            except (KeyError, ValueError):
                result.extra.append(item.address or repr(dict(item.row))[:100])
                continue
        key = identity.id
        if key not in expected or key in seen:
            result.extra.append(item.address or key)
            continue
        seen.add(key)
        wrong: tuple[str, ...] = ()
        if prints is not None and not (wrong := expected.differing(key, prints)):
            expected.prove(spelling, identity)
        if item.address != address(identity):
            wrong = (*wrong, "@address")
        if wrong:
            result.different[key] = wrong
    result.missing = [key for key in expected if key not in seen]
    return result


class _Reader:
    """Reads rows of one table as a store spells them."""

    def __init__(self, schema: TableSchema) -> None:
        self._columns = [(c.name, logical_reader(c), canonical_reader(c)) for c in schema.columns]
        self._key_in = key_reader(schema)

    def __call__(self, stored: Mapping[str, Any]) -> tuple[Key, tuple[int | None, ...]]:
        """Return a row's key, and its fingerprints with None for what cannot be read.

        Raises:
            KeyError: When a column of the key is missing or cannot be read.
        """
        row: dict[str, Any] = {}
        prints: list[int | None] = []
        for name, logical, canonical in self._columns:
            try:
                value = stored.get(name)
                if value is not None:
                    value = logical(value)
                prints.append(_print(canonical, value))
            except (ValueError, KeyError, TypeError, ArithmeticError):
                prints.append(None)
                continue
            if name in stored:
                row[name] = value
        return self._key_in(row), tuple(prints)


def _print(canonical: Callable[[Any], Any], value: Any) -> int:
    if value is None:
        return hash(None)
    form = canonical(value)
    return hash(form if isinstance(form, str) else repr(form))


def _spelling(row: Mapping[str, Any]) -> int | None:
    """Return 64 bits of a row exactly as it is spelled; None when it has values that are not plain ones."""
    anything: Any = row  # the type stubs know less than marshal, which says what it does not take
    try:
        return hash(marshal.dumps(anything, _WITHOUT_REFERENCES))
    except ValueError:
        return None
