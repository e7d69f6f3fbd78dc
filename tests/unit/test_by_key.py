"""From which key on a table is read that was half read."""

from __future__ import annotations

import pytest

from connectors.postgres.by_key import after, first_told, goes_on_after
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
        (table(TEXT, NUMBER), True),
        (table(NUMBER, TEXT), True),
        # Commas stand between what is told of its columns, and may stand in either of two texts.
        (table(TEXT, column(LogicalType.TEXT, "text", name="o")), False),
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


@pytest.mark.parametrize(
    ("schema", "told", "first"),
    [
        (table(NUMBER), "7", "7"),
        (table(NUMBER, TEXT), "7,a,b", "7"),
        (table(TEXT), "a,b", "a,b"),
        (table(TEXT, NUMBER), "a,b,7", "a,b"),
        (table(TEXT, NUMBER, column(LogicalType.UUID, "uuid", name="u")), ",7,0f", ""),
    ],
)
def test_the_first_value_of_a_key_that_is_told(schema: TableSchema, told: str, first: str) -> None:
    assert first_told(schema, told) == first


def test_rows_that_share_the_first_value_are_read_once_more() -> None:
    assert after(table(NUMBER), "7").as_string(None) == "\"n\" > '7'"
    assert after(table(TEXT, NUMBER), "it's").as_string(None) == "\"k\" >= 'it''s'"
