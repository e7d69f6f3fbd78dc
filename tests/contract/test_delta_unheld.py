"""Values that the lake's types cannot hold: kept beside the row where the settings say so, and read back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from deltalake import DeltaTable
from pydantic import ValidationError

from headrace.model.errors import UsageError
from headrace.model.outcome import APPLIED, Rejected
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.contract.fidelity import FidelityContract
from sinks.contract.story import at, expected, state, upsert
from sinks.delta import DeltaSink
from sinks.unheld import refuse_unknown

pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")

SPANS = TableSchema(
    TableId("public", "spans"),
    (
        Column("id", LogicalType.INT64, nullable=False),
        Column("day", LogicalType.DATE),
        Column("until", LogicalType.TIMESTAMPTZ),
        Column("local", LogicalType.TIMESTAMP),
        Column("price", LogicalType.NUMERIC, native="numeric(5,2)", precision=5, scale=2),
        Column("days", LogicalType.DATE, dimensions=1),
        Column("note", LogicalType.TEXT),
    ),
    ("id",),
)
NEVER: dict[str, Any] = {
    "id": 1,
    "day": "infinity",
    "until": "-infinity",
    "local": "infinity",
    "price": "NaN",
    "days": [0, "infinity", None],
    "note": "for ever",
}
KEPT = {
    "day": "infinity",
    "until": "-infinity",
    "local": "infinity",
    "price": "NaN",
    "days": ["1970-01-01", "infinity", None],
}


class TestKept(FidelityContract):
    examples = 4
    bad_table = SPANS
    bad_row: ClassVar[Mapping[str, Any] | None] = {"price": "cheap"}

    @pytest.fixture(params=["null", "nearest"])
    def sink(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[DeltaSink]:
        with closing(_lake(tmp_path, unheld=request.param)) as sink:
            yield sink

    def test_infinite_days_as_keys_do_not_meet(self, sink: DeltaSink) -> None:
        schema = TableSchema(SPANS.table, SPANS.columns, ("id", "day"))
        sink.prepare(schema)
        days = ["infinity", "-infinity", 0]
        changes = [upsert(schema, {**NEVER, "day": day}, at(n)) for n, day in enumerate(days)]
        assert sink.apply(schema, changes) == [APPLIED] * 3
        assert state(sink, schema) == expected(schema, changes)


def _lake(path: Path, **settings: Any) -> DeltaSink:
    return DeltaSink("lake", DeltaSink.Config(path=path / "lake", **settings))


def _read(sink: DeltaSink) -> list[dict[str, Any]]:
    path = sink.target(SPANS).facts["path"]
    rows: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return rows


def test_null_is_stored_and_the_value_is_beside_it(tmp_path: Path) -> None:
    with closing(_lake(tmp_path, unheld="null")) as sink:
        sink.prepare(SPANS)
        plain = upsert(SPANS, {**dict.fromkeys(NEVER), "id": 2, "price": "1.50"}, at(2))
        assert sink.apply(SPANS, [upsert(SPANS, NEVER, at(1)), plain]) == [APPLIED] * 2
        never, other = sorted(_read(sink), key=lambda row: row["id"])
        assert {never[name] for name in ("day", "until", "local", "price")} == {None}
        assert never["days"] is None
        assert json.loads(never["_headrace_unheld"]) == KEPT
        assert other["_headrace_unheld"] is None


def test_the_nearest_is_stored_and_the_value_is_beside_it(tmp_path: Path) -> None:
    with closing(_lake(tmp_path, unheld="nearest")) as sink:
        sink.prepare(SPANS)
        rows = [NEVER, {**NEVER, "id": 2, "price": "Infinity"}, {**NEVER, "id": 3, "price": "-12345.678"}]
        rows.append({**NEVER, "id": 4, "price": "1.005"})
        assert sink.apply(SPANS, [upsert(SPANS, row, at(row["id"])) for row in rows]) == [APPLIED] * 4
        found = sorted(_read(sink), key=lambda row: row["id"])
        never = found[0]
        assert str(never["day"]) == "9999-12-31"
        assert never["until"].isoformat() == "0001-01-01T00:00:00+00:00"
        assert never["local"].isoformat() == "9999-12-31T23:59:59.999999"
        assert [day and str(day) for day in never["days"]] == ["1970-01-01", "9999-12-31", None]
        assert [row["price"] and str(row["price"]) for row in found] == [None, "999.99", "-999.99", "1.00"]
        assert json.loads(never["_headrace_unheld"]) == KEPT


def test_a_column_may_have_a_policy_of_its_own(tmp_path: Path) -> None:
    own = {"unheld.public.spans.day": "nearest", "unheld.public.spans.until": "null"}
    with closing(_lake(tmp_path, **own)) as sink:
        sink.prepare(SPANS)
        row = {**dict.fromkeys(NEVER), "id": 1, "day": "infinity", "until": "infinity"}
        refused = {**row, "id": 2, "local": "infinity"}
        outcomes = sink.apply(SPANS, [upsert(SPANS, row, at(1)), upsert(SPANS, refused, at(2))])
        assert outcomes[0] == APPLIED
        assert isinstance(outcomes[1], Rejected)
        (found,) = _read(sink)
        assert (str(found["day"]), found["until"]) == ("9999-12-31", None)
        assert json.loads(found["_headrace_unheld"]) == {"day": "infinity", "until": "infinity"}


def test_what_a_change_leaves_out_keeps_what_is_beside_it(tmp_path: Path) -> None:
    with closing(_lake(tmp_path, unheld="null")) as sink:
        sink.prepare(SPANS)
        sink.apply(SPANS, [upsert(SPANS, NEVER, at(1))])
        later = {**NEVER, "day": 5, "note": "changed"}
        assert sink.apply(SPANS, [upsert(SPANS, later, at(2), absent=["until", "days"])]) == [APPLIED]
        assert state(sink, SPANS) == expected(SPANS, [upsert(SPANS, later, at(2))])
        finite = {**later, "until": "1970-01-01T00:00:00Z", "local": 0, "price": "1.00", "days": []}
        assert sink.apply(SPANS, [upsert(SPANS, finite, at(3))]) == [APPLIED]
        assert _read(sink)[0]["_headrace_unheld"] is None


def test_settings_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    for wrong in ({"unheld": "drop"}, {"unheld.public.spans.day": "zero"}):
        with pytest.raises(ValidationError):
            _lake(tmp_path, **wrong)
    refuse_unknown({"unheld": "null", "unheld.public.spans.day": "null"}, [SPANS], DeltaSink.Config)
    with pytest.raises(UsageError, match=r"unheld\.public\.spans\.dya"):
        refuse_unknown({"unheld.public.spans.dya": "null"}, [SPANS], DeltaSink.Config)
