"""From which key on a table is read that was half read."""

from __future__ import annotations

import pytest

from connectors.postgres.by_key import after, goes_on_after
from headrace.model.schema import Column, LogicalType, TableId, TableSchema


def table(*key: Column) -> TableSchema:
    return TableSchema(
        TableId("public", "t"), (*key, Column("v", LogicalType.TEXT)), tuple(c.name for c in key)
    )


def column(type_: LogicalType, base: str, *, name: str = "k", nullable: bool = False) -> Column:
    return Column(name, type_, nullable=nullable, native=base, type_name=base)


NUMBER = column(LogicalType.INT64, "int8", name="n")
TEXT = column(LogicalType.TEXT, "text")


@pytest.mark.parametrize(
    ("schema", "goes_on"),
    [
        (table(NUMBER), True),
        (table(column(LogicalType.UUID, "uuid")), True),
        (table(TEXT), True),
        (table(column(LogicalType.TEXT, "varchar")), True),
        (table(TEXT, column(LogicalType.DATE, "date", name="d")), True),
        # Postgres compares it by an operator that the connector's session may not find.
        (table(column(LogicalType.TEXT, "citext")), False),
        # The connector tells a number of days.
        (table(column(LogicalType.DATE, "date")), False),
        # Rows without one come last, and are not larger than any.
        (table(column(LogicalType.INT64, "int8", nullable=True)), False),
    ],
)
def test_which_tables_are_read_from_a_key_on(schema: TableSchema, goes_on: bool) -> None:
    assert goes_on_after(schema) is goes_on


def test_a_key_whose_columns_stand_otherwise_in_the_table_may_be_told_by_another() -> None:
    assert not goes_on_after(TableSchema(TableId("public", "t"), (TEXT, NUMBER), ("n", "k")))


def test_rows_that_share_the_first_value_are_read_once_more() -> None:
    assert after(table(NUMBER), "7").as_string(None) == "\"n\" > '7'"
    assert after(table(TEXT, NUMBER), "it's").as_string(None) == "\"k\" >= 'it''s'"
