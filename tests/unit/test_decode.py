"""Debezium's envelope → changes: what is kept, what is poison, what never raises."""

from __future__ import annotations

import base64
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.debezium import Decoder, Drift
from headrace.model.change import Change, Op, Origin, Poison, Truncate
from headrace.model.key import Key
from headrace.model.schema import Column, LogicalType, TableId, TableSchema

PLACEHOLDER = "__headrace_unavailable_0123456789abcdef"
SCHEMA = TableSchema(
    TableId("public", "orders"),
    (
        Column("id", LogicalType.INT64, nullable=False),
        Column("line", LogicalType.TEXT, nullable=False),
        Column("total", LogicalType.NUMERIC),
        Column("body", LogicalType.TEXT),
        Column("blob", LogicalType.BYTES),
        Column("tags", LogicalType.TEXT, dimensions=1),
        Column("counts", LogicalType.INT32, dimensions=1),
        Column("score", LogicalType.FLOAT64),
    ),
    ("id", "line"),
)
ORIGIN = Origin("shop.public.orders", 0, 41, lsn=7, tx=3, committed_ms=1_000)


@pytest.fixture
def decoder() -> Decoder:
    return Decoder(SCHEMA, 2, PLACEHOLDER)


def row(**values: Any) -> str:
    return json.dumps({"id": 1, "line": "a", **values}, separators=(",", ":"))


def test_an_upsert_carries_the_whole_row_with_logical_values(decoder: Decoder) -> None:
    blob = base64.b64encode(b"\x00\xff").decode()
    image = row(total="1.10", body="b", blob=blob, tags=["x", None], counts=[1], score="NaN")
    change = decoder.decode(ORIGIN, "c", None, image)
    assert isinstance(change, Change)
    assert change.op is Op.UPSERT
    assert change.key.parts == ("1", "a")
    assert change.row["total"] == "1.10"
    assert change.row["blob"] == b"\x00\xff"
    assert change.row["tags"] == ["x", None]
    assert change.row["score"] != change.row["score"]
    assert (change.position.epoch, change.position.offset) == (2, 41)
    assert not change.partial


@pytest.mark.parametrize(
    "image", [json.dumps([c.name for c in SCHEMA.columns]), '"id"', "7", row(total=["1"])]
)
def test_an_image_that_is_no_row_is_poison(decoder: Decoder, image: str) -> None:
    record = decoder.decode(ORIGIN, "c", None, image)
    assert isinstance(record, Poison)
    assert record.code == "RECORD_MALFORMED"


@pytest.mark.parametrize(
    ("column", "mark"),
    [
        ("body", PLACEHOLDER),
        ("blob", base64.b64encode(PLACEHOLDER.encode()).decode()),
        ("tags", [PLACEHOLDER]),
        ("counts", list(PLACEHOLDER.encode())),
    ],
)
def test_an_unchanged_large_value_is_absent_and_not_a_value(decoder: Decoder, column: str, mark: Any) -> None:
    change = decoder.decode(ORIGIN, "u", None, row(**{column: mark}))
    assert isinstance(change, Change)
    assert change.absent == {column}
    assert column not in change.row


def one_column(column: Column) -> Decoder:
    key = Column("id", LogicalType.INT64, nullable=False)
    return Decoder(TableSchema(TableId("public", "one"), (key, column), ("id",)), 2, PLACEHOLDER)


@pytest.mark.parametrize("spell", [str, str.encode])
@pytest.mark.parametrize(
    ("column", "mark"),
    [
        (Column("v", LogicalType.TEXT), PLACEHOLDER),
        (Column("v", LogicalType.NUMERIC), PLACEHOLDER),
        (Column("v", LogicalType.JSON), PLACEHOLDER),
        (Column("v", LogicalType.JSON), f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'),
        (Column("v", LogicalType.BYTES), base64.b64encode(PLACEHOLDER.encode()).decode()),
        (Column("v", LogicalType.TEXT, dimensions=1), [PLACEHOLDER]),
        (Column("v", LogicalType.BYTES, dimensions=1), [base64.b64encode(PLACEHOLDER.encode()).decode()]),
        (Column("v", LogicalType.INT64, dimensions=1), list(PLACEHOLDER.encode())),
        (Column("v", LogicalType.UUID, dimensions=1), ["08c6ed93-17de-32bb-bd05-4787a8f0953f"]),
        (Column("v", LogicalType.OTHER), PLACEHOLDER),
        # The column's type has changed, and the schema does not say so yet.
        (Column("v", LogicalType.TEXT), base64.b64encode(PLACEHOLDER.encode()).decode()),
        (Column("v", LogicalType.TEXT), list(PLACEHOLDER.encode())),
    ],
)
def test_each_column_alone_tells_that_its_value_did_not_change(column: Column, mark: Any, spell: Any) -> None:
    image = spell(json.dumps({"id": 1, "v": mark}, separators=(",", ":")))
    change = one_column(column).decode(ORIGIN, "u", None, image)
    assert isinstance(change, Change)
    assert change.absent == {"v"}


@pytest.mark.parametrize("key", ['{"id":1,"tenant":2}', '{"id":1, "tenant":2}', '{"tenant":1}', '{"ids":1}'])
def test_of_a_key_of_one_column_every_other_is_told_apart(key: str) -> None:
    decoder = one_column(Column("v", LogicalType.TEXT))
    record = decoder.decode(ORIGIN, "u", None, '{"id":1,"v":"a"}', key.encode())
    assert isinstance(record, Poison)
    assert record.code == "KEY_CHANGED"


@pytest.mark.parametrize("key", ['{"id":1}', '{"id":"12:30"}', '{ "id": 1 }', "no key", None])
def test_a_key_of_one_column_is_as_it_was(key: str | None) -> None:
    decoder = one_column(Column("v", LogicalType.TEXT))
    record = decoder.decode(ORIGIN, "u", None, '{"id":1,"v":"a"}', key.encode() if key else None)
    assert isinstance(record, Change)


def test_a_users_text_that_merely_contains_the_placeholder_is_kept(decoder: Decoder) -> None:
    change = decoder.decode(ORIGIN, "u", None, row(body=f"see {PLACEHOLDER}"))
    assert isinstance(change, Change)
    assert change.row["body"] == f"see {PLACEHOLDER}"
    assert not change.partial


def test_a_delete_is_known_by_its_key_alone(decoder: Decoder) -> None:
    change = decoder.decode(ORIGIN, "d", row(total=None), None)
    assert isinstance(change, Change)
    assert change.op is Op.DELETE
    assert change.key.parts == ("1", "a")


def test_a_row_with_another_key_than_the_tables_is_refused_and_noted(decoder: Decoder) -> None:
    record = decoder.decode(ORIGIN, "u", None, row(), b'{"id":1,"tenant":2}')
    assert isinstance(record, Poison)
    assert record.code == "KEY_CHANGED"
    assert decoder.drift == Drift(key=("id", "tenant"))
    good = decoder.decode(ORIGIN, "u", None, row(), orjson.dumps(dict.fromkeys(SCHEMA.key, 1)))
    assert isinstance(good, Change)
    assert decoder.drift is not None
    assert decoder.drift.key == ()


def test_a_record_of_before_a_column_went_is_no_news() -> None:
    columns = (Column("id", LogicalType.INT64, nullable=False), Column("v", LogicalType.TEXT))
    schema = TableSchema(TableId("public", "one"), columns, ("id",), former=("gone",))
    decoder = Decoder(TableSchema.from_dict(schema.as_dict()), 2, PLACEHOLDER, strict=True)
    assert isinstance(decoder.decode(ORIGIN, "u", None, '{"id":1,"v":"a","gone":1}'), Change)
    assert decoder.drift is None
    assert isinstance(decoder.decode(ORIGIN, "u", None, '{"id":1,"v":"a","gone":1,"came":2}'), Poison)
    assert decoder.drift == Drift(added=("came",))


def test_a_truncate_has_a_place_in_the_order(decoder: Decoder) -> None:
    record = decoder.decode(ORIGIN, "t", None, None)
    assert isinstance(record, Truncate)
    assert record.position.offset == 41


@pytest.mark.parametrize(
    ("op", "before", "after"),
    [
        (None, None, None),
        ("x", None, row()),
        ("c", None, None),
        ("d", None, None),
        ("c", None, "{"),
        ("c", None, "[]"),
        ("c", None, '{"id": 1}'),
        ("d", '{"line": "a"}', None),
        ("c", None, row(blob="not base64!")),
        ("c", None, row(score="tall")),
    ],
)
def test_what_is_no_change_is_poison_with_a_reason(
    decoder: Decoder, op: str | None, before: str | None, after: str | None
) -> None:
    record = decoder.decode(ORIGIN, op, before, after)
    assert isinstance(record, Poison)
    assert record.code
    assert record.reason


def test_a_reason_names_the_column_and_shows_nothing_of_its_value(decoder: Decoder) -> None:
    for name, after in {"score": row(score="s3cret-value"), "blob": row(blob="s3cret-value!")}.items():
        record = decoder.decode(ORIGIN, "c", None, after)
        assert isinstance(record, Poison)
        assert name in record.reason
        assert "s3cret" not in record.reason


@given(
    op=st.sampled_from(["c", "u", "r", "d", "t", "m", None, "?"]),
    before=st.none() | st.text() | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps),
    after=st.none()
    | st.text()
    | st.dictionaries(st.sampled_from(["id", "line", "blob", "tags"]), st.text()).map(json.dumps),
)
def test_nothing_makes_decode_raise(op: str | None, before: str | None, after: str | None) -> None:
    Decoder(SCHEMA, 2, PLACEHOLDER).decode(ORIGIN, op, before, after)


def test_a_record_that_was_emptied_for_its_size_names_its_row_or_is_a_delete(decoder: Decoder) -> None:
    value = b'{"headrace_too_large":3000000,"before":null,"after":null,"op":"%s","source":{"lsn":5}}'
    record = decoder.decode_raw(ORIGIN, b'{"id":7,"line":"a"}', value.replace(b"%s", b"u"))
    assert isinstance(record, Poison)
    assert (record.code, record.key) == ("RECORD_TOO_LARGE", Key.of(["7", "a"]))
    assert "3,000,000" in record.reason
    gone = decoder.decode_raw(ORIGIN, b'{"id":7,"line":"a"}', value.replace(b"%s", b"d"))
    assert isinstance(gone, Change)
    assert (gone.op, gone.key) == (Op.DELETE, Key.of(["7", "a"]))


def test_an_array_in_a_key_that_may_be_one_of_several_dimensions_is_refused() -> None:
    columns = (
        Column("tags", LogicalType.TEXT, dimensions=1),
        Column("counts", LogicalType.INT32, dimensions=1),
    )
    keyed = Decoder(TableSchema(TableId("public", "t"), columns, ("tags",)), 1, "unchanged")
    for folded in ([None, None], ["[Ljava.lang.String;@23bb8443"]):
        refused = keyed.decode(ORIGIN, "c", None, json.dumps({"tags": folded, "counts": [1]}))
        assert isinstance(refused, Poison)
        assert refused.code == "RECORD_MALFORMED"
        assert "tags" in refused.reason
        # Elsewhere the row is asked for.
        change = keyed.decode(ORIGIN, "c", None, json.dumps({"tags": ["a"], "counts": folded}))
        assert isinstance(change, Change)
        assert change.row["counts"] == folded


DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("kind", "moved", "kept"),
    [
        (LogicalType.DATE, [-141_417, -703_383], [-141_416, 19_782, 2_146_033_979, -622_191_234]),
        (LogicalType.TIMESTAMP, [-141_416 * DAY_US - 1], [-141_416 * DAY_US, -(2**63), 2**63 - 1]),
        (
            LogicalType.TIMESTAMPTZ,
            ["0044-03-15T12:00:00Z", "-0043-03-13T12:00:00Z", "1582-10-20T00:00:00Z", "+300000-01-01T00:00Z"],
            ["1582-10-26T00:00:00Z", "+10000-01-01T00:00:00Z", "infinity"],
        ),
    ],
)
def test_times_that_java_moves_inside_an_array_are_refused(
    kind: LogicalType, moved: list[Any], kept: list[Any]
) -> None:
    decoder = one_column(Column("v", kind, dimensions=1))
    for value in moved:
        refused = decoder.decode(ORIGIN, "c", None, json.dumps({"id": 1, "v": [kept[0], value]}))
        assert isinstance(refused, Poison), value
        assert "inside an array" in refused.reason
    assert isinstance(decoder.decode(ORIGIN, "c", None, json.dumps({"id": 1, "v": kept})), Change)
