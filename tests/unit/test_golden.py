"""What the real connector said of every type decodes to what Postgres holds, or is known not to."""

from __future__ import annotations

import json

import pytest

from connectors.debezium import Decoder
from connectors.doubt import folded
from headrace.model.change import Change, Origin, Poison, Record
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from headrace.model.values import canonical
from tests.golden.meaning import Golden, column_of, expected, goldens
from tests.golden.record import PLACEHOLDER
from tests.golden.suite import SUITES, Suite

GOLDENS = goldens()
VALUES = [golden for golden in GOLDENS if not golden.phase.startswith("unchanged")]
UNCHANGED = [golden for golden in GOLDENS if golden.phase == "unchanged"]
ORIGIN = Origin("t", 0, 0)

SNAPSHOT_ONLY = {
    ("date", '"0044-03-15 BC"'),
    ("date", '"4713-01-01 BC"'),
    ("date", '"1582-10-10"'),
}
"""Delivered as another date by a snapshot; found before, see ``connectors.postgres.suspects``."""

ALWAYS = {
    ("interval", '"infinity"'),
    ("numeric[]", '["NaN"]'),
    ("mood[]", '["sad", null]'),
}
"""Told as another value: looked up in the database, see ``connectors.doubt``."""

UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
FOLDED = {
    ("integer[]", '["1", "2", "3", "4"]'),
    ("boolean[]", '["t", "f"]'),
    ("boolean[]", "[null]"),
    ("double precision[]", '["0.1", "0.2"]'),
    ("text[]", '["a", "b", "c", "d"]'),
    ("uuid[]", f'["{UUID}", "{UUID}"]'),
    ("jsonb[]", '["1", "2"]'),
    ("mood[]", '["sad", "ok"]'),
}
"""Arrays of several dimensions, and of NULLs only, which look the same: looked up in the database."""

REFUSED = {
    ("timestamp", '"294276-12-31 23:59:59.999999"'),
}
"""Recognised as lost, so the record is rejected by name."""


def decoded(golden: Golden, column: Column) -> Record:
    schema = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32), column), ("id",))
    row = f'{{"id":1,"v":{golden.value}}}'
    return Decoder(schema, 1, PLACEHOLDER).decode(ORIGIN, "c", None, row)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.records.stem)
def test_every_case_was_recorded_from_snapshot_and_stream(suite: Suite) -> None:
    recorded = goldens(suite)
    for native, literals in suite.cases.items():
        for phase in ("snapshot", "stream"):
            found = [golden for golden in recorded if golden.native == native and golden.phase == phase]
            assert len(found) == len(literals) + 1, (native, phase)
    for phase in ("unchanged", "unchanged, replica identity full"):
        large = [golden.native for golden in recorded if golden.phase == phase]
        assert sorted(large) == sorted(suite.large)


@pytest.mark.parametrize("phase", ["snapshot", "stream"])
def test_every_value_arrives_as_it_is_or_is_known_not_to(phase: str) -> None:
    wrong, refused, lost = set(), set(), set()
    for golden in VALUES:
        column = column_of(golden)
        if golden.phase != phase or column is None:
            continue
        assert golden.value is not None, golden
        record = decoded(golden, column)
        if isinstance(record, Poison):
            refused.add(golden.case)
            continue
        assert isinstance(record, Change)
        if folded(record.row["v"]):
            lost.add(golden.case)
            continue
        if canonical(column, record.row["v"]) != canonical(column, expected(column, golden.text)):
            wrong.add(golden.case)
    assert refused == REFUSED
    assert lost == FOLDED
    assert wrong == ALWAYS | (SNAPSHOT_ONLY if phase == "snapshot" else set())


def test_a_captured_type_is_never_missing_from_a_record() -> None:
    missing = {golden.native for golden in VALUES if golden.value is None}
    captured = {golden.native for golden in VALUES if column_of(golden) is not None}
    assert not missing & captured


@pytest.mark.parametrize("golden", UNCHANGED, ids=lambda golden: golden.native)
def test_an_unchanged_large_value_is_known_to_be_absent(golden: Golden) -> None:
    column = column_of(golden, full=False)
    if column is None:
        assert json.loads(golden.value or "") is None
        return
    record = decoded(golden, column)
    assert isinstance(record, Change)
    assert record.absent == {"v"}
    assert "v" not in record.row


def test_under_replica_identity_full_every_large_value_arrives() -> None:
    whole = [golden for golden in GOLDENS if golden.phase.endswith("full")]
    assert whole
    assert not [golden.native for golden in whole if golden.value]
