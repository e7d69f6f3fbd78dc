"""What a run notes of the order in which rows are read, and of tables that cannot be described just now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from connectors.base import Capture, Source
from headrace.control.registry import SourceTableEntry
from headrace.control.runs.repository import change
from headrace.control.runs.shapes import columns_now, orders_now, read_otherwise, sent_now
from headrace.model.errors import SourceError
from headrace.model.schema import TableId, TableSchema
from tests.unit.test_run_sweeping import A, B, C, Shop

UP, DOWN = [1, 20, 0], [1, 25, 950]
SENT: dict[str, Any] = {A: ["7", 100], B: ["8", 200]}
SENT_ALL = SENT | {C: ["9", 300]}


class Database:
    """Tables whose keys order rows in some way; what it refuses is not described."""

    def __init__(self, **orders: list[int]) -> None:
        self.orders = orders
        self.refuses: dict[str, str] = {}

    def catalogue(self, tables: Sequence[TableId], _: Mapping[TableId, Any]) -> list[TableSchema]:
        for table in tables:
            if code := self.refuses.get(table.name):
                raise SourceError("It cannot be described.", code=code)
        return [self._schema(table) for table in tables]

    def _schema(self, table: TableId) -> TableSchema:
        (schema,) = (one for one in self.schemas if one.table == table)
        key = tuple(replace(column, nullable=False) for column in schema.columns)
        return replace(schema, columns=key, extra={"order": [self.orders.get(table.name, UP)]})

    schemas: Sequence[TableSchema] = ()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def asked(shop: Shop, database: Database) -> tuple[Source, Capture, list[SourceTableEntry]]:
    entry = shop.registry.source("shop")
    database.schemas = [table.schema for table in entry.tables]
    return cast("Source", database), Capture("shop", tuple(database.schemas), "p", "p"), list(entry.tables)


def test_of_a_table_that_is_read_the_order_in_which_it_was_read_is_compared(shop: Shop) -> None:
    """Its order changes while it is read; then the run is paused, and asks for the other tables."""
    database = Database()
    source, capture, tables = asked(shop, database)
    orders, _ = orders_now(shop.job, source, capture, tables)
    change(shop.registry, shop.job.name, {"orders": orders, "done": [A]})
    assert not read_otherwise(shop.job, source, capture)
    database.orders["a"] = DOWN
    orders, _ = orders_now(shop.job, source, capture, [table for table in tables if table.topic != A])
    change(shop.registry, shop.job.name, {"orders": orders})
    assert read_otherwise(shop.job, source, capture)


@pytest.mark.parametrize("code", ["SOURCE_TABLE_MISSING", "SOURCE_NO_PRIMARY_KEY"])
def test_one_table_that_cannot_be_described_hides_nothing_of_the_others(shop: Shop, code: str) -> None:
    database = Database()
    source, capture, tables = asked(shop, database)
    orders, _ = orders_now(shop.job, source, capture, tables)
    columns = columns_now(shop.job, source, capture)
    change(shop.registry, shop.job.name, {"orders": orders, "columns": columns, "sent_up_to": SENT_ALL})
    database.refuses["c"] = code
    assert orders_now(shop.job, source, capture, tables)[1] == SENT
    assert sent_now(shop.job, source, capture, tables, {}) == SENT
    assert not read_otherwise(shop.job, source, capture)
    database.orders["a"] = DOWN
    assert orders_now(shop.job, source, capture, tables)[1] == {B: SENT[B]}
    assert read_otherwise(shop.job, source, capture)


def test_a_database_that_does_not_answer_takes_nothing_back_of_what_was_sent(shop: Shop) -> None:
    database = Database()
    source, capture, tables = asked(shop, database)
    database.refuses["a"] = "SOURCE_UNREACHABLE"
    for ask in (
        lambda: orders_now(shop.job, source, capture, tables),
        lambda: read_otherwise(shop.job, source, capture),
        lambda: sent_now(shop.job, source, capture, tables, {}),
    ):
        with pytest.raises(SourceError, match="cannot be described"):
            ask()
