"""What the demo asks of a store, and how a published template becomes an address."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from headrace.demo.compare import Found
from headrace.model.key import Key
from headrace.model.schema import TableSchema

__all__ = ["Asked", "Facts", "Store", "address", "prefix"]

Facts = Mapping[str, Mapping[str, Any]]
"""Table name → what the sink says about where that table lives."""

Asked = tuple[TableSchema, Key]
"""One row somebody asks for."""

_FIELD = re.compile(r"\{([^{}]*)\}")


class Store(Protocol):
    """A store to be read, table by table."""

    name: str

    def counts(self, tables: Sequence[str]) -> dict[str, int]:
        """Return how many rows of each table a reader sees now."""
        ...

    def rows(self, schema: TableSchema) -> Iterator[Found]:
        """Yield everything the store holds of the table."""
        ...

    def some(self, schema: TableSchema, keys: Sequence[Key]) -> Iterator[Found]:
        """Yield what the store holds of these rows of the table."""
        ...

    def address(self, schema: TableSchema, key: Key) -> str | None:
        """Return where a reader looks for a row; None when rows have no address."""
        ...

    def present(self, asked: Sequence[Asked]) -> set[Asked]:
        """Return which of these rows can be read now, with as few requests as the store allows."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


def address(template: str, schema: TableSchema, key: Key) -> str:
    """Return ``template`` with each ``{column}`` replaced by that key column's escaped text."""
    parts = dict(zip(schema.key, key.escaped, strict=True))
    return _FIELD.sub(lambda match: parts[match.group(1)], template)


def prefix(template: str) -> str:
    """Return what is before the first ``{column}``."""
    return template.partition("{")[0]
