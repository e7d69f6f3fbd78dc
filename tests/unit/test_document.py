"""Rows survive the spelling as JSON documents, whatever a store would do with them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from headrace.model.values import canonical_row
from sinks.contract.specimens import EDGES
from sinks.document import BadValue, Document, dumps


def _schema(kind: LogicalType) -> TableSchema:
    return TableSchema(TableId("public", "t"), (Column("k", LogicalType.INT64), Column("v", kind)), ("k",))


@pytest.mark.parametrize("objects_only", [False, True])
@pytest.mark.parametrize("kind", list(LogicalType))
def test_every_edge_round_trips(kind: LogicalType, objects_only: bool) -> None:
    schema = _schema(kind)
    document = Document(schema, str.upper, objects_only=objects_only)
    for edge in EDGES[kind]:
        row = {"k": 1, "v": edge}
        line = dumps(document.encode(row))
        assert b"\n" not in line
        assert canonical_row(schema, document.decode(document.parse(line))) == canonical_row(schema, row)


def test_json_keeps_its_own_spelling_of_numbers() -> None:
    document = Document(_schema(LogicalType.JSON))
    line = dumps(document.encode({"k": 1, "v": '{"a": 1.10, "b": 12345678901234567890.0}'}))
    assert line == b'{"k":1,"v":{"a": 1.10, "b": 12345678901234567890.0}}'


@pytest.mark.parametrize("kind", [LogicalType.JSON, LogicalType.BYTES, LogicalType.DATE, LogicalType.FLOAT64])
def test_a_value_of_another_type_is_named_not_shown(kind: LogicalType) -> None:
    with pytest.raises(BadValue, match="“v”") as caught:
        Document(_schema(kind)).encode({"k": 1, "v": "{secret"})
    assert "secret" not in str(caught.value)


def test_columns_the_schema_does_not_know_are_passed_on() -> None:
    document = Document(_schema(LogicalType.TEXT), str.upper)
    assert document.encode({"k": 1, "v": "a", "new": 2}) == {"K": 1, "V": "a", "NEW": 2}


def test_the_rest_of_a_document_follows_its_head() -> None:
    document = Document(_schema(LogicalType.TEXT))
    assert document.rest({"k": 1, "v": "a"}) == b',"k":1,"v":"a"}'
    assert document.rest({}) == b"}"


def test_many_rows_follow_their_heads_in_one() -> None:
    document = Document(_schema(LogicalType.JSON))
    rows: list[dict[str, Any]] = [{"k": 1, "v": "[1]"}, {}, {"k": 2, "v": None}]
    assert (
        document.joined([b'\n{"a":0', b"\n{0", b"\n"], rows)
        == b'\n{"a":0,"k":1,"v":[1]}\n{0}\n,"k":2,"v":null}'
    )
    with pytest.raises(BadValue, match="“v”"):
        document.joined([b"", b""], [{"k": 1, "v": "[1]"}, {"k": 2, "v": "["}])
    assert rows[0] == {"k": 1, "v": "[1]"}


def test_text_that_is_no_unicode_is_no_value() -> None:
    with pytest.raises(BadValue):
        Document(_schema(LogicalType.TEXT)).rest({"k": 1, "v": "\ud800"})


def test_a_reserved_name_is_renamed_even_where_the_schema_does_not_know_it() -> None:
    document = Document(_schema(LogicalType.TEXT), lambda name: name.replace("_", "%5F"), reserved=("_own",))
    assert document.encode({"k": 1, "_own": 2}) == {"k": 1, "%5Fown": 2}
