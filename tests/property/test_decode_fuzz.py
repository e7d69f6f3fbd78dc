"""Any bytes are a change, a control record or a poison, never an exception (D13, D14)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from connectors.debezium import Decoder
from headrace.model.change import Change, Ignored, Op, Origin, Poison, Truncate
from headrace.model.position import Position
from headrace.model.schema import Column, LogicalType, TableId, TableSchema

PLACEHOLDER = "__headrace_unavailable_0011223344556677"
SCHEMA = TableSchema(
    TableId("public", "t"),
    (
        Column("id", LogicalType.NUMERIC),
        *(Column(kind.value, kind) for kind in LogicalType),
        *(Column(f"{kind.value}s", kind, dimensions=1) for kind in LogicalType),
    ),
    ("id",),
)
DECODER = Decoder(SCHEMA, 3, PLACEHOLDER)
PLACE = Origin("t", 0, 7)

odd = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["c", "u", "d", "r", "t", "m", "NaN", "NAN", PLACEHOLDER, [PLACEHOLDER], "AA==", "\ud800"]
    )
)
anything = st.recursive(
    odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from([column.name for column in SCHEMA.columns] + ["other", ""])
images = st.dictionaries(names, anything, max_size=8) | anything
envelopes = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["c", "u", "d", "r", "t", "m", "x"]) | anything,
        "before": images,
        "after": images,
        "source": st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("lsn", "txId", "ts_ms", "snapshot"), anything)
        )
        | anything,
        "more": anything,
    },
)


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


written = envelopes.map(as_bytes)
cut = st.builds(lambda raw, end: raw[:end], written, st.integers(0, 200))
spoilt = st.builds(
    lambda raw, at, byte: raw[:at] + bytes([byte]) + raw[at:],
    written,
    st.integers(0, 200),
    st.integers(0, 255),
)
values = st.none() | st.binary(max_size=60) | written | cut | spoilt | anything.map(as_bytes)
keys = st.none() | st.binary(max_size=20) | images.map(as_bytes)


@given(keys, values)
@example(None, b"[" * 5_000 + b"]" * 5_000)
@example(b"[" * 5_000, b'{"op": "c", "after": {"id": 1}}')
@example(None, b'{"op": "c", "after": {"id": "1e999999999"}}')
@example(None, b'{"op": "c", "after": {"id": "POSITIVE_INFINITY"}}')
@example(None, b'{"op": "d", "before": {"id": {}}}')
@example(b'{"id": "NAN"}', b"\x00\x00\x00\x00\x01Avro")
def test_any_bytes_decode_to_something_that_is_known(key: bytes | None, value: bytes | None) -> None:
    record = DECODER.decode_raw(PLACE, key, value)
    assert (record.origin.topic, record.origin.partition, record.origin.offset) == ("t", 0, 7)
    match record:
        case Change():
            assert record.position == Position(3, 7)
            assert record.op is Op.UPSERT or not (record.row or record.absent)
            assert not record.row.keys() & record.absent
            assert record.row.keys() <= SCHEMA.by_name.keys()
            assert record.key.id
        case Poison():
            assert record.code
            assert record.code == record.code.upper()
            assert len(record.reason) <= 500
        case Truncate():
            assert record.position == Position(3, 7)
        case Ignored():
            assert record.why


@given(images)
def test_a_placeholder_is_never_a_value(image: Any) -> None:
    record = DECODER.decode(PLACE, "u", None, json.dumps(image))
    if isinstance(record, Change):
        assert PLACEHOLDER not in [value for value in record.row.values() if isinstance(value, str)]
        assert [PLACEHOLDER] not in record.row.values()
