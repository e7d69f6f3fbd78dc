"""What has to hold for every position, key, value and pair of changes."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.change import Change, Op, Origin, collapse
from headrace.model.key import Key, escape, ids, unescape
from headrace.model.outcome import APPLIED, Outcome
from headrace.model.position import MAX_EPOCH, MAX_OFFSET, MAX_PARTITIONS, Position
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from headrace.model.values import (
    canonical,
    date_days,
    date_text,
    key_of,
    key_reader,
    key_text,
    micros_of,
    time_text,
    timestamp_text,
)
from sinks.contract.specimens import column_value, json_text, value
from sinks.contract.story import ORDERS, delete, upsert
from sinks.document import exact
from sinks.document import json_text as json_text_of
from sinks.memory import MemorySink

positions = st.builds(
    Position, st.integers(0, MAX_EPOCH), st.integers(0, MAX_OFFSET), st.integers(0, MAX_PARTITIONS - 1)
)
parts = st.lists(
    st.none() | st.text() | st.sampled_from(["%null", "%empty", "%", ":", "a:b", ""]), min_size=1, max_size=4
)
keys = parts.map(Key.of)


def _single(texts: list[str | None]) -> list[Key]:
    return [Key.of([text]) for text in texts]


def _turned(root: Any) -> Any:
    if isinstance(root, dict):
        return {key: _turned(inner) for key, inner in reversed(root.items())}
    return [_turned(inner) for inner in root] if isinstance(root, list) else root


class TestPosition:
    @given(positions, positions)
    def test_versions_and_texts_keep_the_order(self, one: Position, other: Position) -> None:
        assert (one < other) == (one.version < other.version) == (one.text < other.text)
        assert (one == other) == (one.version == other.version) == (one.text == other.text)

    @given(positions)
    def test_a_version_is_a_positive_long_and_leads_back(self, position: Position) -> None:
        assert 0 < position.version < 2**63
        assert len(position.text) == 19
        assert Position.from_version(position.version) == position


class TestKey:
    @given(keys, keys)
    def test_equal_ids_mean_equal_keys(self, one: Key, other: Key) -> None:
        assert (one.id == other.id) == (one == other)
        assert (one.id_within(40) == other.id_within(40)) == (one == other)

    @given(parts)
    def test_the_parts_can_be_read_back(self, texts: list[str | None]) -> None:
        named = {"%null": None, "%empty": ""}
        read = [named[part] if part in named else unescape(part) for part in Key.of(texts).id.split(":")]
        assert read == texts

    @given(st.lists(keys, max_size=6) | st.lists(st.none() | st.text(), max_size=6).map(_single))
    def test_ids_of_many_are_the_ids_of_each(self, many: list[Key]) -> None:
        assert ids(many) == [key.id for key in many]

    @given(st.text())
    def test_escaping_is_reversible_and_leaves_no_separator(self, text: str) -> None:
        assert unescape(escape(text)) == text
        assert ":" not in escape(text)

    @given(keys, st.integers(72, 200))
    def test_an_id_fits_where_it_is_told_to(self, key: Key, room: int) -> None:
        assert len(key.id_within(room).encode()) <= room
        if len(key.id.encode()) <= room:
            assert key.id_within(room) == key.id

    @given(st.decimals(allow_nan=False, allow_infinity=False, places=3), st.integers(0, 5))
    def test_numbers_that_are_equal_make_one_key(self, number: Decimal, zeros: int) -> None:
        column = Column("k", LogicalType.NUMERIC)
        text = format(number, "f")
        assert key_text(column, text) == key_text(column, text + "0" * zeros)

    @given(st.data(), st.lists(st.sampled_from(LogicalType), min_size=1, max_size=3))
    def test_many_rows_are_read_as_one_is(self, data: st.DataObject, kinds: list[LogicalType]) -> None:
        columns = tuple(Column(f"c{number}", kind) for number, kind in enumerate(kinds))
        schema = TableSchema(TableId("public", "t"), columns, tuple(column.name for column in columns))
        row = {column.name: data.draw(st.none() | column_value(column)) for column in columns}
        assert key_reader(schema)(row) == key_of(schema, row)


class TestTime:
    @given(st.integers(-2_440_588, 2_145_042_540))
    def test_dates_lead_back(self, days: int) -> None:
        assert date_days(date_text(days)) == days

    @given(st.dates())
    def test_dates_agree_with_the_standard_library(self, day: date) -> None:
        assert date_text(day.toordinal() - date(1970, 1, 1).toordinal()) == day.isoformat()

    @given(st.integers(-210_866_803_200_000_000, 9_223_371_331_200_000_000), st.booleans())
    def test_timestamps_lead_back(self, micros: int, utc: bool) -> None:
        assert micros_of(timestamp_text(micros, utc=utc)) == micros

    @given(st.datetimes(), st.integers(-15 * 60, 15 * 60))
    def test_zones_are_applied(self, moment: datetime, minutes: int) -> None:
        zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
        since = zoned - datetime(1970, 1, 1, tzinfo=timezone.utc)
        assert micros_of(zoned.isoformat()) == since // timedelta(microseconds=1)

    @given(st.integers(0, 86_400_000_000))
    def test_times_have_one_text(self, micros: int) -> None:
        assert micros_of(f"1970-01-01T{time_text(micros)}") == micros


class TestCanonical:
    @given(st.data(), st.sampled_from(LogicalType), st.integers(0, 2))
    def test_it_is_json_and_stable(self, data: st.DataObject, kind: LogicalType, dimensions: int) -> None:
        column = Column("v", kind, dimensions)
        drawn = data.draw(column_value(column))
        once = canonical(column, drawn)
        assert json.loads(json.dumps(once)) == once
        assert canonical(column, drawn) == once

    @given(st.data(), st.sampled_from([LogicalType.NUMERIC, LogicalType.JSON, LogicalType.TIMESTAMPTZ]))
    def test_texts_that_differ_in_meaning_differ(self, data: st.DataObject, kind: LogicalType) -> None:
        column = Column("v", kind)
        one, other = data.draw(value(kind)), data.draw(value(kind))
        if canonical(column, one) == canonical(column, other) and kind is LogicalType.NUMERIC:
            assert Decimal(one) == Decimal(other) or Decimal(one).is_nan()

    @given(json_text())
    def test_spacing_and_order_of_json_mean_nothing(self, text: str) -> None:
        column = Column("v", LogicalType.JSON)
        assert canonical(column, json_text_of(_turned(exact(text)))) == canonical(column, text)

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            ("1.10", "1.1", True),
            ("0.1", "0.10000000000000000000001", False),
            ("12345678901234567890123", "12345678901234567890124", False),
            ("1e400", "1e401", False),
            ('"1"', "1", False),
            ("[1,2]", "[2,1]", False),
            ('{"a":1,"b":2}', '{"b":2,"a":1}', True),
        ],
    )
    def test_numbers_in_json_are_compared_exactly(self, one: str, other: str, same: bool) -> None:
        column = Column("v", LogicalType.JSON)
        assert (canonical(column, one) == canonical(column, other)) is same


def _change(number: int, kind: str, schema: TableSchema = ORDERS) -> Change:
    position = Position(0, number)
    row = {"id": 1, "item": f"item {number}", "price": "1", "note": f"note {number}"}
    if kind == "delete":
        return delete(schema, 1, position)
    return upsert(schema, row, position, absent=["note"] if kind == "partial" else [])


class TestCollapse:
    @given(st.lists(st.sampled_from(["full", "partial", "delete"]), min_size=1, max_size=6))
    def test_one_change_has_the_effect_of_all(self, kinds: list[str]) -> None:
        # Postgres sends no update of a row that it has deleted.
        history = [
            "full",
            *(k if k != "partial" or kinds[i - 1] != "delete" else "full" for i, k in enumerate(kinds)),
        ]
        changes = [_change(number, kind) for number, kind in enumerate(history)]
        one_by_one, at_once = self._sink("one by one"), self._sink("at once")
        for change in changes:
            assert one_by_one.apply(ORDERS, [change]) == [APPLIED]
        collapsed = changes[0]
        for change in changes[1:]:
            collapsed = collapse(collapsed, change)
        outcome: list[Outcome] = at_once.apply(ORDERS, [collapsed])
        assert outcome == [APPLIED]
        assert list(at_once.scan(ORDERS)) == list(one_by_one.scan(ORDERS))

    @staticmethod
    def _sink(store: str) -> MemorySink:
        sink = MemorySink("collapse", MemorySink.Config(store=store))
        sink.drop(ORDERS)
        sink.prepare(ORDERS)
        return sink

    @given(st.permutations(["full", "partial", "partial"]))
    def test_grouping_does_not_matter(self, kinds: list[str]) -> None:
        a, b, c = (_change(number, kind) for number, kind in enumerate(kinds))
        assert collapse(collapse(a, b), c) == collapse(a, collapse(b, c))

    def test_what_a_delete_took_is_not_carried_over(self) -> None:
        newest = _change(3, "partial")
        assert collapse(_change(2, "delete"), newest) == newest


def test_a_delete_carries_no_row() -> None:
    key, origin = key_of(ORDERS, {"id": 1}), Origin("t", 0, 1)
    row: dict[str, Any] = {"id": 1}
    with pytest.raises(ValueError, match="no row"):
        Change(ORDERS.table, key, Op.DELETE, row, frozenset(), Position(0, 1), origin)
