# ruff: noqa: S101
"""The part of the contract about content: keys never meet, values arrive equal, a bad record stays alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from headrace.model.key import Key
from headrace.model.outcome import APPLIED, Rejected
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from headrace.model.values import key_text
from sinks.base import Sink
from sinks.contract.specimens import AWKWARD_COLUMNS, AWKWARD_TEXTS, EDGES, column_value, key_text_value
from sinks.contract.story import (
    ORDERS,
    State,
    Suite,
    at,
    delete,
    expected,
    order,
    search,
    state,
    table,
    unequal,
    upsert,
)

__all__ = ["FidelityContract"]


class FidelityContract(Suite):
    """Every row arrives as it is, under its own key, in its own table, or is refused by name."""

    bad_table: ClassVar[TableSchema] = ORDERS
    bad_row: ClassVar[Mapping[str, Any] | None] = None

    # ------------------------------------------------------------ isolation

    @pytest.mark.parametrize("where", [0, 567, 999])
    def test_one_bad_record_among_a_thousand(self, sink: Sink, where: int) -> None:
        if self.bad_row is None:
            return
        schema = self.bad_table
        sink.prepare(schema)
        good = {column.name: None for column in schema.columns}
        rows = [{**good, schema.key[0]: number} for number in range(1000)]
        rows[where] = {**rows[where], **self.bad_row, schema.key[0]: where}
        outcomes = sink.apply(schema, [upsert(schema, row, at(n)) for n, row in enumerate(rows)])
        refused = outcomes.pop(where)
        assert isinstance(refused, Rejected)
        assert refused.code == refused.code.upper() != ""
        assert outcomes == [APPLIED] * 999
        left = [upsert(schema, row, at(n)) for n, row in enumerate(rows) if n != where]
        assert state(sink, schema) == expected(schema, left)

    def test_nothing_but_bad_records(self, sink: Sink) -> None:
        if self.bad_row is None:
            return
        schema = self.bad_table
        sink.prepare(schema)
        good = {column.name: None for column in schema.columns}
        bad = [{**good, **self.bad_row, schema.key[0]: number} for number in range(1000)]
        outcomes = sink.apply(schema, [upsert(schema, row, at(n)) for n, row in enumerate(bad)])
        assert [type(outcome) for outcome in outcomes] == [Rejected] * 1000
        assert state(sink, schema) == {}
        after = upsert(schema, {**good, schema.key[0]: 7}, at(2000))
        assert sink.apply(schema, [after]) == [APPLIED]
        assert state(sink, schema) == expected(schema, [after])

    def test_tables_do_not_mix(self, sink: Sink) -> None:
        names = [
            ("public", "order"),
            ("public", "orders"),
            ("public", "Orders"),
            ("a-b", "c"),
            ("a", "b-c"),
            ("other", "orders"),
        ]
        schemas = [
            table(name, {"id": LogicalType.INT64, "item": LogicalType.TEXT}, ["id"], space)
            for space, name in names
        ]
        kept: dict[TableId, State] = {}
        for number, schema in enumerate(schemas):
            sink.prepare(schema)
            change = upsert(schema, {"id": 1, "item": str(number)}, at(number + 1))
            assert sink.apply(schema, [change]) == [APPLIED]
            kept[schema.table] = expected(schema, [change])
        assert {schema.table: state(sink, schema) for schema in schemas} == kept
        sink.truncate(schemas[0], at(100))
        sink.drop(schemas[3])
        assert {s.table: state(sink, s) for s in (*schemas[1:3], *schemas[4:])} == {
            s.table: kept[s.table] for s in (*schemas[1:3], *schemas[4:])
        }

    # ------------------------------------------------------------ identity

    def test_different_keys_never_meet(self, sink: Sink) -> None:
        schema = table(
            "pairs", {"a": LogicalType.TEXT, "b": LogicalType.TEXT, "n": LogicalType.INT32}, ["a", "b"]
        )
        sink.prepare(schema)
        texts = [
            *AWKWARD_TEXTS[:-2],
            "a:b",
            "b",
            "c",
            "a",
            "b:c",
            "a-b",
            "b-c",
            "%3A",
            "a%3Ab",
            "A",
            "k" * 1000,
            "k" * 1001,
        ]
        pairs = dict.fromkeys(
            [(a, b) for a in texts for b in ("c", "", "b-c", ":")] + [("k", text) for text in texts]
        )
        changes = [upsert(schema, {"a": a, "b": b, "n": n}, at(n)) for n, (a, b) in enumerate(pairs)]
        assert sink.apply(schema, changes) == [APPLIED] * len(changes)
        assert state(sink, schema) == expected(schema, changes)
        removed = changes[::2]
        gone = [delete(schema, c.row, at(10_000)) for c in removed]
        assert sink.apply(schema, gone) == [APPLIED] * len(gone)
        assert state(sink, schema) == expected(schema, changes[1::2])

    def test_keys_of_any_text_and_length(self, sink: Sink) -> None:
        schema = table(
            "texts", {"a": LogicalType.TEXT, "b": LogicalType.TEXT, "n": LogicalType.INT32}, ["a", "b"]
        )
        sink.prepare(schema)
        offsets = iter(range(10**9))

        def check(pairs: list[tuple[str, str]]) -> None:
            changes = [
                upsert(schema, {"a": a, "b": b, "n": n}, at(next(offsets))) for n, (a, b) in enumerate(pairs)
            ]
            assert sink.apply(schema, changes) == [APPLIED] * len(changes)
            assert unequal(state(sink, schema), expected(schema, changes)) == {}

        search(
            st.lists(st.tuples(key_text_value(), key_text_value()), min_size=10, max_size=60, unique=True),
            check,
            self.examples,
        )

    def test_keys_of_every_type(self, sink: Sink) -> None:
        for kind, edges in EDGES.items():
            if kind in (LogicalType.JSON, LogicalType.INTERVAL):
                continue  # equal values of these have no one text, so they make no key
            schema = table(f"by_{kind.value}", {"k": kind, "n": LogicalType.INT32}, ["k"])
            column = schema.by_name["k"]
            distinct = {
                Key.of([key_text(column, edge)]): edge
                for edge in edges
                if edge not in ("infinity", "-infinity")
            }
            changes = [upsert(schema, {"k": edge, "n": n}, at(n)) for n, edge in enumerate(distinct.values())]
            sink.prepare(schema)
            assert sink.apply(schema, changes) == [APPLIED] * len(changes)
            assert state(sink, schema) == expected(schema, changes)

    # ------------------------------------------------------------ values

    def test_every_edge_of_every_type_arrives_equal(self, sink: Sink) -> None:
        schema = table(
            "edges", {"id": LogicalType.INT64, **{kind.value: kind for kind in LogicalType}}, ["id"]
        )
        sink.prepare(schema)
        rows = [dict.fromkeys(column.name for column in schema.columns)]
        rows += [{**rows[0], kind.value: edge} for kind, edges in EDGES.items() for edge in edges]
        changes = [upsert(schema, {**row, "id": n}, at(n)) for n, row in enumerate(rows)]
        outcomes = sink.apply(schema, changes)
        assert {c.key.id: (c.row, o) for c, o in zip(changes, outcomes, strict=True) if o != APPLIED} == {}
        assert unequal(state(sink, schema), expected(schema, changes)) == {}

    def test_any_value_arrives_equal(self, sink: Sink) -> None:
        scalars = [Column(kind.value, kind) for kind in LogicalType]
        arrays = [Column(f"{kind.value}s", kind, dimensions=1) for kind in LogicalType]
        cubes = [
            Column("words", LogicalType.TEXT, dimensions=2),
            Column("docs", LogicalType.JSON, dimensions=2),
        ]
        columns = (Column("id", LogicalType.INT64, nullable=False), *scalars, *arrays, *cubes)
        schema = TableSchema(TableId("public", "anything"), columns, ("id",))
        sink.prepare(schema)
        numbers = iter(range(10**9))

        def check(rows: list[dict[str, Any]]) -> None:
            changes = [upsert(schema, {**row, "id": n}, at(n)) for n, row in zip(numbers, rows, strict=False)]
            assert sink.apply(schema, changes) == [APPLIED] * len(changes)
            assert unequal(state(sink, schema), expected(schema, changes)) == {}

        row = st.fixed_dictionaries({column.name: column_value(column) for column in columns[1:]})
        search(st.lists(row, min_size=1, max_size=8), check, self.examples)

    def test_texts_that_look_like_placeholders_are_texts(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        changes = [order(n, at(n), item=text, note=text) for n, text in enumerate(AWKWARD_TEXTS)]
        sink.apply(ORDERS, changes)
        partial = [order(n, at(n + 1000), item="new", absent=["note"]) for n in range(len(AWKWARD_TEXTS))]
        assert sink.apply(ORDERS, partial) == [APPLIED] * len(partial)
        full = [order(n, at(n + 1000), item="new", note=text) for n, text in enumerate(AWKWARD_TEXTS)]
        assert state(sink, ORDERS) == expected(ORDERS, full)

    def test_awkward_column_names_stay_apart(self, sink: Sink) -> None:
        kinds = {"id": LogicalType.INT64, **dict.fromkeys(AWKWARD_COLUMNS, LogicalType.TEXT)}
        schema = table("Awkward-table.name:1", kinds, ["id", "a.b"], schema="Odd Schema")
        sink.prepare(schema)
        row = {"id": 1, **{name: f"value of {name}" for name in AWKWARD_COLUMNS}}
        changes = [upsert(schema, {**row, "id": n}, at(n)) for n in range(3)]
        assert sink.apply(schema, changes) == [APPLIED] * 3
        partial = upsert(schema, {**row, "id": 1, "_id": "new"}, at(9), absent=["a", "_source", "%2E"])
        assert sink.apply(schema, [partial]) == [APPLIED]
        merged = upsert(schema, {**row, "id": 1, "_id": "new"}, at(9))
        assert state(sink, schema) == expected(schema, [changes[0], merged, changes[2]])
