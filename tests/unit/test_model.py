"""The model's edges, one by one."""

from __future__ import annotations

import pytest

from headrace.model.errors import HeadraceError, Retry, SinkError, SinkUnavailable, UsageError
from headrace.model.key import Key
from headrace.model.position import MAX_EPOCH, MAX_OFFSET, MAX_PARTITIONS, OFFSET_BITS, Position
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from headrace.model.values import canonical, canonical_row, date_days, date_text, key_of, key_text, micros_of


class TestPosition:
    @pytest.mark.parametrize(
        ("epoch", "offset", "partition"),
        [
            (-1, 0, 0),
            (0, -1, 0),
            (0, 0, -1),
            (MAX_EPOCH + 1, 0, 0),
            (0, MAX_OFFSET + 1, 0),
            (0, 0, MAX_PARTITIONS),
        ],
    )
    def test_nothing_outside_its_range(self, epoch: int, offset: int, partition: int) -> None:
        with pytest.raises(ValueError, match="outside"):
            Position(epoch, offset, partition)

    def test_the_bits_are_a_signed_long_without_its_sign(self) -> None:
        assert Position(MAX_EPOCH, MAX_OFFSET, MAX_PARTITIONS - 1).version == 2**63 - 1
        assert Position(0, 0).version == 1

    def test_what_is_below_a_position_is_of_its_partition_or_of_an_earlier_life(self) -> None:
        first, other = Position(3, 7), Position(3, 7, 2)
        assert first.floor == 0
        assert other.floor <= Position(3, 0, 2).version < other.version
        for elsewhere in (Position(3, MAX_OFFSET, 1), Position(2, 0, 2)):
            assert elsewhere.version < other.floor
        assert Position(3, 0, 3).version > other.version

    @pytest.mark.parametrize("version", [0, 1 << OFFSET_BITS, 2**63])
    def test_a_version_that_no_position_has(self, version: int) -> None:
        with pytest.raises(ValueError, match=r"outside|no position"):
            Position.from_version(version)


class TestKey:
    @pytest.mark.parametrize(
        ("parts", "key_id"),
        [
            (["1"], "1"),
            (["7", "2"], "7:2"),
            (["a:b", "c%"], "a%3Ab:c%25"),
            ([None, ""], "%null:%empty"),
            (["%null", "%empty"], "%25null:%25empty"),
            (["a\nb\x7f"], "a%0Ab%7F"),
            (["ä🙂"], "ä🙂"),
        ],
    )
    def test_ids_are_readable(self, parts: list[str | None], key_id: str) -> None:
        assert Key.of(parts).id == key_id

    def test_too_long_an_id_becomes_a_hash_that_no_readable_id_can_be(self) -> None:
        hashed = Key.of(["ä" * 300]).id_within(512)
        assert hashed.startswith("%sha256-")
        assert len(hashed) == 72
        assert Key.of([hashed]).id != hashed


class TestSchema:
    SCHEMA = TableSchema(
        TableId("public", 'od"d'),
        (
            Column("id", LogicalType.UUID, nullable=False, native="uuid"),
            Column("tags", LogicalType.TEXT, dimensions=1),
            Column("price", LogicalType.NUMERIC, precision=12, scale=2),
        ),
        ("id",),
    )

    def test_it_survives_json(self) -> None:
        assert TableSchema.from_dict(self.SCHEMA.as_dict()) == self.SCHEMA

    def test_names_can_be_pasted_into_sql(self) -> None:
        assert self.SCHEMA.table.quoted == '"public"."od""d"'

    @pytest.mark.parametrize("key", [(), ("nothing",)])
    def test_a_table_without_a_key_is_none(self, key: tuple[str, ...]) -> None:
        with pytest.raises(ValueError, match="no usable key"):
            TableSchema(self.SCHEMA.table, self.SCHEMA.columns, key)


class TestValues:
    @pytest.mark.parametrize(
        ("days", "text"),
        [
            (0, "1970-01-01"),
            (-719_528, "0000-01-01"),
            (-719_529, "-0001-12-31"),
            (2_932_897, "+10000-01-01"),
            (11_016, "2000-02-29"),
        ],
    )
    def test_dates_of_every_age(self, days: int, text: str) -> None:
        assert date_text(days) == text
        assert date_days(text) == days

    @pytest.mark.parametrize("text", ["", "today", "2024-1-1", "2024-01-01T00:00:00", "20240101"])
    def test_what_is_no_date(self, text: str) -> None:
        with pytest.raises(ValueError, match="no date"):
            date_days(text)

    @pytest.mark.parametrize("text", ["", "now", "2024-01-01", "2024-01-01T10", "2024-01-01T10:00:00+1"])
    def test_what_is_no_timestamp(self, text: str) -> None:
        with pytest.raises(ValueError, match="no timestamp"):
            micros_of(text)

    @pytest.mark.parametrize(
        "text", ["2024-01-01 00:00:00.5+02", "2023-12-31T22:00:00.500Z", "2024-01-01T00:00:00.5+02:00"]
    )
    def test_spellings_of_one_instant(self, text: str) -> None:
        assert canonical(Column("v", LogicalType.TIMESTAMPTZ), text) == "2023-12-31T22:00:00.5Z"

    @pytest.mark.parametrize(
        ("kind", "one", "other"),
        [
            (LogicalType.NUMERIC, "1.10", "1.1"),
            (LogicalType.NUMERIC, "-0.00", "0"),
            (LogicalType.NUMERIC, "100", "1e2"),
            (LogicalType.FLOAT64, 0.0, -0.0),
            (LogicalType.FLOAT64, 1, 1.0),
            (LogicalType.FLOAT64, float("nan"), float("nan")),
            (LogicalType.JSON, '{"a": 1, "b": [1.0]}', '{"b":[1],"a":1}'),
            (LogicalType.BYTES, b"\x00", bytearray(b"\x00")),
        ],
    )
    def test_what_is_the_same(self, kind: LogicalType, one: object, other: object) -> None:
        column = Column("v", kind)
        assert canonical(column, one) == canonical(column, other)

    def test_a_row_names_every_column(self) -> None:
        row = {"id": "a", "price": "1.0"}
        assert canonical_row(TestSchema.SCHEMA, row) == {"id": "a", "tags": None, "price": "1e0"}

    @pytest.mark.parametrize(
        ("kind", "value", "text"),
        [
            (LogicalType.BOOLEAN, True, "true"),
            (LogicalType.INT64, -5, "-5"),
            (LogicalType.NUMERIC, "1.00", "1"),
            (LogicalType.NUMERIC, "1e3", "1000"),
            (LogicalType.NUMERIC, "NaN", "NaN"),
            (LogicalType.BYTES, b"\xff\x00", "ff00"),
            (LogicalType.DATE, 0, "1970-01-01"),
            (LogicalType.TIME, 1, "00:00:00.000001"),
            (LogicalType.TIMESTAMP, 0, "1970-01-01T00:00:00"),
            (LogicalType.TIMESTAMPTZ, "2024-01-01T00:00:00+01:00", "2023-12-31T23:00:00Z"),
            (LogicalType.TEXT, None, None),
        ],
    )
    def test_texts_in_keys(self, kind: LogicalType, value: object, text: str | None) -> None:
        assert key_text(Column("k", kind), value) == text

    def test_a_key_needs_its_columns(self) -> None:
        with pytest.raises(KeyError):
            key_of(TestSchema.SCHEMA, {"price": "1"})


class TestErrors:
    def test_they_say_what_to_do_and_whether_to_wait(self) -> None:
        error = SinkUnavailable("The store sleeps.", code="STORE_SLEEPS", hint="Wake it.")
        assert error.as_dict() == {"code": "STORE_SLEEPS", "message": "The store sleeps.", "hint": "Wake it."}
        assert (error.retry, SinkError.retry, UsageError.retry) == (
            Retry.LATER,
            Retry.AFTER_REPAIR,
            Retry.NEVER,
        )
        assert issubclass(SinkUnavailable, HeadraceError)
