"""The demo's comparison must be able to fail: every kind of difference is injected and must be named."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headrace.demo.compare import SHOWN_KEYS, Comparison, Expected, Found, compare
from headrace.demo.spelling import embedded, single
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from headrace.model.values import key_of

SCHEMA = TableSchema(
    TableId("public", "order_items"),
    (
        Column("order_id", LogicalType.INT64),
        Column("line_no", LogicalType.INT32),
        Column("price", LogicalType.NUMERIC),
        Column("note", LogicalType.TEXT),
        Column("options", LogicalType.JSON),
        Column("sizes", LogicalType.INT32, dimensions=1),
        Column("sold_at", LogicalType.TIMESTAMPTZ),
    ),
    ("order_id", "line_no"),
)


def row(order: int = 1, line: int = 1, **changed: Any) -> dict[str, Any]:
    return {
        "order_id": order,
        "line_no": line,
        "price": "1.10",
        "note": "said “hi”",
        "options": '{"a": 1, "b": [null, "x"]}',
        "sizes": [1, None, 3],
        "sold_at": "2026-01-01 10:00:00.5+00",
        **changed,
    }


ROWS = [row(order, line) for order in range(1, 41) for line in (1, 2)]


def result(found: Iterable[dict[str, Any]]) -> Comparison:
    """Compare, at first sight, and where equal rows are remembered, which must hide nothing."""
    rows = [Found(None, r) for r in found]
    before = Expected(SCHEMA, ROWS)
    assert compare("lake", before, [Found(None, dict(r)) for r in ROWS]).equal
    first = compare("search", Expected(SCHEMA, ROWS), rows)
    assert compare("search", before, rows) == first
    return first


def test_equal_rows_are_equal_however_they_are_spelled() -> None:
    spelled = [
        row(
            r["order_id"],
            r["line_no"],
            price="1.1000",
            options={"b": [None, "x"], "a": 1},
            sizes="[1,null,3]",
            sold_at="2026-01-01T10:00:00.500000Z",
        )
        for r in ROWS
    ]
    comparison = result(spelled)
    assert comparison.equal
    assert (comparison.expected, comparison.found) == (80, 80)


def test_a_missing_row_is_named() -> None:
    comparison = result(ROWS[1:])
    assert not comparison.equal
    assert comparison.missing == ["1:1"]


def test_an_extra_row_is_named() -> None:
    assert result([*ROWS, row(99)]).extra == ["99:1"]


def test_a_row_held_twice_is_extra() -> None:
    assert result([*ROWS, ROWS[0]]).extra == ["1:1"]


def test_a_row_without_a_key_is_extra_and_its_original_missing() -> None:
    comparison = result([{"note": "stray"}, *ROWS[1:]])
    assert comparison.missing == ["1:1"]
    assert comparison.extra == ["{'note': 'stray'}"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("price", "1.11"),
        ("price", 1.1000000000000003),
        ("price", None),
        ("note", 'said "hi"'),
        ("note", ""),
        ("note", "__unavailable__"),
        ("options", '{"a": 1, "b": [null, "X"]}'),
        ("options", '{"a": 1}'),
        ("options", "no json"),
        ("sizes", [1, 3]),
        ("sizes", [3, None, 1]),
        ("sizes", "no list"),
        ("sold_at", "2026-01-01T10:00:00.500001Z"),
        ("sold_at", "2026-01-01T11:00:00.5Z"),
        ("sold_at", "yesterday"),
    ],
)
def test_a_changed_value_is_named_by_key_and_column(column: str, value: Any) -> None:
    comparison = result([row(**{column: value}), *ROWS[1:]])
    assert comparison.different == {"1:1": (column,)}
    assert not comparison.missing
    assert not comparison.extra


def test_a_column_the_store_lost_differs() -> None:
    lost = {name: value for name, value in ROWS[0].items() if name != "note"}
    assert result([lost, *ROWS[1:]]).different == {"1:1": ("note",)}


def test_null_and_absent_are_the_same() -> None:
    expected = Expected(SCHEMA, [row(note=None)])
    lacking = {name: value for name, value in row().items() if name != "note"}
    assert compare("search", expected, [Found(None, lacking)]).equal


def test_a_row_at_the_wrong_address_differs() -> None:
    address = {key_of(SCHEMA, r).id: f"item:{r['order_id']}:{r['line_no']}" for r in ROWS}
    found = [Found("item:elsewhere", ROWS[0]), *(Found(address[key_of(SCHEMA, r).id], r) for r in ROWS[1:])]
    assert compare("cache", Expected(SCHEMA, ROWS), found, lambda key: address.get(key.id)).different == {
        "1:1": ("@address",)
    }
    found[0] = Found("item:1:1", ROWS[0])
    expected = Expected(SCHEMA, ROWS)
    for _ in range(2):
        assert compare("cache", expected, found, lambda key: address.get(key.id)).equal
    assert len(compare("cache", expected, found, lambda key: None).different) == len(ROWS)


def test_values_that_python_takes_for_equal_are_told_apart_again() -> None:
    schema = TableSchema(
        TableId("public", "t"), (Column("id", LogicalType.INT32), Column("x", LogicalType.INT32)), ("id",)
    )
    expected = Expected(schema, [{"id": 1, "x": 1}])
    assert compare("lake", expected, [Found(None, {"id": 1, "x": 1})]).equal
    for wrong in (True, 1.0):
        assert not compare("lake", expected, [Found(None, {"id": 1, "x": wrong})]).equal


def test_an_empty_store_lacks_everything_and_the_report_names_the_first_keys() -> None:
    report = result([]).as_dict()
    assert report["missing"] == 80
    assert len(report["keys"]["missing"]) == SHOWN_KEYS


def test_single_precision_is_compared_as_such() -> None:
    schema = TableSchema(
        TableId("public", "t"), (Column("id", LogicalType.INT32), Column("x", LogicalType.FLOAT32)), ("id",)
    )
    expected = Expected(schema, [{"id": 1, "x": single(12.3)}])
    assert compare("lake", expected, [Found(None, {"id": 1, "x": 12.300000190734863})]).equal
    assert compare("lake", expected, [Found(None, {"id": 1, "x": 12.3})]).equal
    assert not compare("lake", expected, [Found(None, {"id": 1, "x": 12.4})]).equal


def test_json_that_is_part_of_a_document_is_told_from_text() -> None:
    document = {**row(), "options": "text"}
    expected = Expected(SCHEMA, [row(options='"text"')])
    assert compare("cache", expected, [Found(None, embedded(SCHEMA, document))]).equal
    for spelled, stored in (("null", {"%json": None}), ("[1]", {"%json": [1]}), ("[1]", [1]), ("{}", {})):
        expected = Expected(SCHEMA, [row(options=spelled)])
        assert compare("search", expected, [Found(None, embedded(SCHEMA, row(options=stored)))]).equal
    assert embedded(SCHEMA, row(options=None))["options"] is None
