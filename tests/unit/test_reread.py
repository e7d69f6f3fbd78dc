"""Tables whose keys the connector cannot read beside the stream are named before it is asked to."""

from __future__ import annotations

import pytest

from connectors.postgres.reread import why_unreadable
from headrace.model.schema import Column, LogicalType, TableId, TableSchema


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Column("k", LogicalType.INT32), ""),
        (Column("k", LogicalType.UUID), ""),
        (Column("k", LogicalType.NUMERIC, native="numeric(10,2)"), ""),
        (Column("k", LogicalType.DATE), ""),
        (Column("k", LogicalType.TIMESTAMPTZ), ""),
        (Column("k", LogicalType.TIME), ""),
        (Column("k", LogicalType.TEXT, dimensions=1), "an array"),
        (Column("k", LogicalType.INT32, dimensions=1), "an array"),
        (Column("k", LogicalType.NUMERIC, native="money"), "money"),
        (Column("k", LogicalType.JSON, native="hstore", compared_otherwise=True), "holds hstore"),
    ],
)
def test_a_key_that_cannot_be_read_beside_the_stream(column: Column, words: str) -> None:
    schema = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32), column), ("id", "k"))
    found = why_unreadable(schema)
    assert words in found
    assert bool(found) == bool(words)
