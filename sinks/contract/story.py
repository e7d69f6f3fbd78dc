# ruff: noqa: S101
"""The words the contract is written in: tables, changes, and the state a reader finds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.model.change import Change, Op, Origin
from headrace.model.position import Position
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from headrace.model.values import canonical_row, key_of
from sinks.base import Sink

__all__ = [
    "ORDERS",
    "Suite",
    "at",
    "delete",
    "expected",
    "order",
    "search",
    "state",
    "table",
    "unequal",
    "upsert",
]

State = dict[str, tuple[dict[str, Any], int]]
"""Key id → (canonical row, version): everything about a table's rows that has to be equal."""


def table(
    name: str, columns: Mapping[str, LogicalType], key: Sequence[str], schema: str = "public"
) -> TableSchema:
    """Return a table of scalar columns, the key's not nullable."""
    described = tuple(Column(column, kind, nullable=column not in key) for column, kind in columns.items())
    return TableSchema(TableId(schema, name), described, tuple(key))


ORDERS = table(
    "orders",
    {
        "id": LogicalType.INT64,
        "item": LogicalType.TEXT,
        "price": LogicalType.NUMERIC,
        "note": LogicalType.TEXT,
    },
    ["id"],
)
"""The table most tests use."""


def at(offset: int, epoch: int = 0, partition: int = 0) -> Position:
    """Return a position."""
    return Position(epoch, offset, partition)


def _origin(position: Position) -> Origin:
    return Origin(
        "shop.public.orders",
        position.partition,
        position.offset,
        lsn=2**40 + position.offset,
        tx=7,
        committed_ms=1_700_000_000_000,
    )


def upsert(
    schema: TableSchema, row: Mapping[str, Any], position: Position, absent: Iterable[str] = ()
) -> Change:
    """Return the change that makes ``row`` the state of its key; ``absent`` columns keep their values."""
    gone = frozenset(absent)
    kept = {name: value for name, value in row.items() if name not in gone}
    return Change(schema.table, key_of(schema, row), Op.UPSERT, kept, gone, position, _origin(position))


def delete(schema: TableSchema, key: Mapping[str, Any] | Any, position: Position) -> Change:
    """Return the change that removes a row, given its key's columns or the value of its only one."""
    values = key if isinstance(key, Mapping) else {schema.key[0]: key}
    return Change(
        schema.table, key_of(schema, values), Op.DELETE, {}, frozenset(), position, _origin(position)
    )


def order(
    number: int, position: Position, item: str = "cup", note: str | None = "-", absent: Iterable[str] = ()
) -> Change:
    """Return an upsert of one row of :data:`ORDERS`."""
    return upsert(ORDERS, {"id": number, "item": item, "price": "1.10", "note": note}, position, absent)


def state(sink: Sink, schema: TableSchema) -> State:
    """Return the table as a reader finds it; a key that is there twice fails."""
    rows: State = {}
    for stored in sink.scan(schema):
        assert stored.key not in rows, f"{stored.key} is stored twice"
        rows[stored.key] = (canonical_row(schema, stored.row), stored.version)
    return rows


def expected(schema: TableSchema, changes: Iterable[Change]) -> State:
    """Return the state that full upserts of distinct keys leave."""
    return {c.key.id: (canonical_row(schema, c.row), c.position.version) for c in changes}


def unequal(found: State, wanted: State) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return key → column → what was found and what was wanted, where they differ."""
    pairs = {key: (found.get(key, ({}, 0)), row) for key, row in wanted.items()}
    return {
        key: {
            name: (have[0].get(name), want[0][name]) for name in want[0] if have[0].get(name) != want[0][name]
        }
        for key, (have, want) in pairs.items()
        if have != want
    }


def search(strategy: st.SearchStrategy[Any], check: Callable[[Any], None], examples: int) -> None:
    """Try ``check`` on ``examples`` draws, or for ``HEADRACE_TEST_BUDGET_SECS`` when that is set.

    Only then is a failing draw made smaller: on a slow store that takes longer than the whole suite.
    """
    budget = float(os.environ.get("HEADRACE_TEST_BUDGET_SECS", "0"))
    end = time.monotonic() + budget
    calm = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    phases = [Phase.explicit, Phase.generate, *([Phase.shrink] if budget else [])]
    thrifty = settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=calm, phases=phases
    )
    attempt = thrifty(given(strategy)(check))
    attempt()
    while time.monotonic() < end:
        attempt()


class Suite:
    """What every part of the contract knows.

    Attributes:
        examples: How many draws each property makes; few where one ``apply`` is slow.
    """

    examples: ClassVar[int] = 10
