"""The lake sink keeps the contract on real Delta tables, whichever way it replaces rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace.model.outcome import APPLIED, Rejected
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.contract import SinkContract, specimens, table
from sinks.contract.story import at, expected, state, upsert
from sinks.delta import DeltaSink

# A large drawn row makes Hypothesis warn about the length of its own repr.
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")

UNSTORABLE = ("+294276-12-31T23:59:59.999999Z", "infinity", "-infinity")
"""What a timestamp of 64-bit microseconds has no number for."""

PRICED = TableSchema(
    TableId("public", "priced"),
    (
        Column("id", LogicalType.INT64, nullable=False),
        Column("price", LogicalType.NUMERIC, native="numeric(10,2)", precision=10, scale=2),
    ),
    ("id",),
)


class TestRewriting(SinkContract):
    examples = 4
    bad_table = PRICED
    bad_row: ClassVar[Mapping[str, Any] | None] = {"price": "NaN"}
    vectors = False

    @pytest.fixture(autouse=True)
    def storable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        edges = specimens.EDGES[LogicalType.TIMESTAMPTZ]
        kept = tuple(edge for edge in edges if edge not in UNSTORABLE)
        monkeypatch.setitem(specimens.EDGES, LogicalType.TIMESTAMPTZ, kept)

    @pytest.fixture
    def sink(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeltaSink]:
        if self.vectors:
            # Tables of a test are small: without this every file is rewritten after all.
            monkeypatch.setattr("sinks.delta.files._ROWS", 4)
            monkeypatch.setattr("sinks.delta.writer._MOST_HIDDEN", 0.9)
        config = DeltaSink.Config(path=tmp_path / "lake", deletion_vectors=self.vectors)
        sink = DeltaSink("lake", config)
        yield sink
        sink.close()

    @pytest.mark.parametrize("value", UNSTORABLE)
    def test_a_time_beyond_the_type_is_refused_by_name(self, sink: DeltaSink, value: str) -> None:
        schema = table("times", {"id": LogicalType.INT64, "t": LogicalType.TIMESTAMPTZ}, ["id"])
        sink.prepare(schema)
        good = upsert(schema, {"id": 1, "t": "2026-01-01T00:00:00Z"}, at(1))
        outcomes = sink.apply(schema, [good, upsert(schema, {"id": 2, "t": value}, at(2))])
        assert outcomes[0] == APPLIED
        assert isinstance(outcomes[1], Rejected)
        assert outcomes[1].code == "DELTA_VALUE_TIMESTAMPTZ"
        assert state(sink, schema) == expected(schema, [good])


class TestHiding(TestRewriting):
    vectors = True
