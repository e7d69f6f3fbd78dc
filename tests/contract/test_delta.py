"""The lake sink keeps the contract on real Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.contract import SinkContract, specimens
from sinks.delta import DeltaSink

UNSTORABLE = ("+294276-12-31T23:59:59.999999Z", "infinity", "-infinity")


class TestDeltaSink(SinkContract):
    examples = 4
    bad_table = TableSchema(
        TableId("public", "priced"),
        (Column("id", LogicalType.INT64), Column("price", LogicalType.NUMERIC, precision=10, scale=2)),
        ("id",),
    )
    bad_row = {"price": "NaN"}

    @pytest.fixture(autouse=True)
    def storable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        edges = specimens.EDGES[LogicalType.TIMESTAMPTZ]
        kept = tuple(edge for edge in edges if edge not in UNSTORABLE)
        monkeypatch.setitem(specimens.EDGES, LogicalType.TIMESTAMPTZ, kept)

    @pytest.fixture
    def sink(self, tmp_path: Path) -> Iterator[DeltaSink]:
        sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path / "lake"))
        yield sink
        sink.close()
