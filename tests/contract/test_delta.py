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

INFINITE = ("infinity", "-infinity")
UNSTORABLE = {
    LogicalType.TIMESTAMPTZ: ("+294276-12-31T23:59:59.999999Z", *INFINITE),
    LogicalType.TIMESTAMP: INFINITE,
    LogicalType.DATE: INFINITE,
}
"""What a timestamp of 64-bit microseconds, or a day, has no number for."""

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
        for kind, unstorable in UNSTORABLE.items():
            kept = tuple(edge for edge in specimens.EDGES[kind] if edge not in unstorable)
            monkeypatch.setitem(specimens.EDGES, kind, kept)

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

    @pytest.mark.parametrize(
        ("kind", "value"), [(kind, value) for kind, values in UNSTORABLE.items() for value in values]
    )
    def test_a_time_beyond_the_type_is_refused_by_name(
        self, sink: DeltaSink, kind: LogicalType, value: str
    ) -> None:
        schema = table("times", {"id": LogicalType.INT64, "t": kind}, ["id"])
        sink.prepare(schema)
        good = upsert(schema, {"id": 1, "t": specimens.EDGES[kind][0]}, at(1))
        outcomes = sink.apply(schema, [good, upsert(schema, {"id": 2, "t": value}, at(2))])
        assert outcomes[0] == APPLIED
        assert isinstance(outcomes[1], Rejected)
        assert outcomes[1].code == f"DELTA_VALUE_{kind.value.upper()}"
        assert state(sink, schema) == expected(schema, [good])


class TestHiding(TestRewriting):
    vectors = True
