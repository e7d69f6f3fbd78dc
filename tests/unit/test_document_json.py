"""Columns that hold JSON: checked without being parsed, written as they are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.document import BadValue, Document, checked_json

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_PIECES = st.sampled_from(
    [*'{}[]",:\\ue0129+-.tfnull \n\t\r\x00\x7f\x1f', "ä", "\\ud800", "NaN", "null", "1e999"]
)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except ValueError:
        return False
    return True


def _passes(text: str) -> bool:
    try:
        checked_json(text)
    except ValueError:
        return False
    return True


@given(_VALUES, st.booleans())
def test_all_json_passes_as_it_is(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert msgspec.json.encode(checked_json(text)) == text.encode()


@given(_VALUES, st.lists(st.tuples(st.integers(0, 400), st.booleans(), _PIECES), max_size=4))
def test_what_is_no_json_never_passes(value: Any, edits: list[tuple[int, bool, str]]) -> None:
    text = json.dumps(value)
    for place, over, piece in edits:
        at = place % (len(text) + 1)
        text = text[:at] + piece + text[at + over :]
    assert _passes(text) == _is_json(text)


@pytest.mark.parametrize("text", ['"\\ud800"', '{"a":"\\udfff\\ud800"}', "1e999", " \n[1]\r\n", "1" * 400])
def test_what_postgres_calls_json_passes(text: str) -> None:
    assert _passes(text)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "-Infinity", "", " ", "{", '"\n"', "\ufeff1", "1 2"])
def test_other_texts_are_refused_by_the_name_of_their_column(text: str) -> None:
    columns = (Column("k", LogicalType.INT64), Column("v", LogicalType.JSON))
    document = Document(TableSchema(TableId("public", "t"), columns, ("k",)))
    with pytest.raises(BadValue, match="“v”"):
        document.rest({"k": 1, "v": text})


@given(_VALUES, st.booleans(), st.integers(0, 1))
def test_what_was_read_back_can_be_written_again(value: Any, objects_only: bool, dimensions: int) -> None:
    columns = (Column("k", LogicalType.INT64), Column("v", LogicalType.JSON, dimensions))
    schema = TableSchema(TableId("public", "t"), columns, ("k",))
    document = Document(schema, objects_only=objects_only)
    text = json.dumps(value)
    once = document.rest({"k": 1, "v": [text] if dimensions else text})
    again = document.rest(document.decode(document.parse(b"{" + once[1:])))
    assert json.loads(b"{" + again[1:]) == json.loads(b"{" + once[1:])
