"""A stored row that somebody has damaged is as good as none; it stops neither its table nor any other."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.model.change import Op
from headrace.model.key import Key
from headrace.model.schema import Column, LogicalType, TableSchema
from sinks.base import Stored
from sinks.document import Document
from sinks.elasticsearch.merging import row_of
from sinks.memory import MemorySink
from sinks.redis.layout import HashLayout, JsonLayout
from sinks.redis.names import META_FIELD
from spark_jobs.apply import apply_records
from spark_jobs.held import Holds
from tests.support.small_table import NOTHING_CARRIED, SCHEMA, TABLE, change
from tests.unit.test_table_trouble import OTHER, TABLES, of_other


class Server:
    """Answers as Redis would, with values that are given; one question at a time or many."""

    def __init__(self, *values: Any) -> None:
        self.values = list(values)

    def mget(self, keys: Sequence[str]) -> list[Any]:
        return self.values[: len(keys)]

    def pipeline(self, *, transaction: bool = False) -> Server:
        return self

    def _asked(self, *_: object) -> None:
        """Note nothing: the answers stand."""

    getrange = hget = hgetall = _asked

    def execute(self, *, raise_on_error: bool = True) -> list[Any]:
        return self.values


def test_a_document_with_a_byte_too_much_is_no_row_and_the_one_beside_it_is() -> None:
    layout = JsonLayout(SCHEMA)
    good = layout.value(change(3, 1))
    broken = good.replace(b'"00', b'"x0', 1)
    found = layout.fetch(Server(good + b"}", good, good[:40], broken), ["a", "b", "c", "d"])
    assert [row is not None for row in found] == [False, True, False, False]
    assert layout.versions(Server(good + b"}", broken), ["a", "b"])[0] == change(3, 1).position.version
    assert layout.versions(Server(broken), ["a"]) == [None]


@pytest.mark.parametrize("field", [b"id", META_FIELD.encode()])
def test_a_hash_with_a_field_that_is_no_value_of_its_column_is_no_row(field: bytes) -> None:
    layout = HashLayout(SCHEMA)
    told, _ = layout.fields(change(3, 1))
    good = {told[n].encode(): told[n + 1].encode() for n in range(0, len(told), 2)}
    bad = {**good, field: b"soon"}
    assert [row is not None for row in layout.fetch(Server(bad, good), ["a", "b"])] == [False, True]


def test_a_version_of_a_hash_that_is_none_is_not_ours() -> None:
    assert HashLayout(SCHEMA).versions(Server(b"soon", b"7"), ["a", "b"]) == [None, 7]


def test_a_document_with_a_date_that_elasticsearch_has_let_in_is_no_row() -> None:
    columns = (Column("id", LogicalType.INT64), Column("at", LogicalType.DATE))
    document = Document(TableSchema(TABLE, columns, ("id",)), objects_only=True)
    assert row_of(document, {"id": 1, "at": "soon"}) is None
    assert row_of(document, {"id": 1, "at": "1970-01-02"}) == {"id": 1, "at": 1}


class Damaged(MemorySink):
    """A store that raises what nobody expects when one table's rows are read."""

    def rows(self, schema: TableSchema, keys: Sequence[Key]) -> dict[Key, Stored]:
        if schema.table == TABLE:
            raise ValueError("soon is no date")
        return super().rows(schema, keys)


def test_what_else_cannot_be_read_is_the_trouble_of_its_table_alone() -> None:
    target = Damaged("m", MemorySink.Config(store=uuid.uuid4().hex))
    for schema in (SCHEMA, OTHER):
        target.prepare(schema)
    gone = change(1, 7, Op.DELETE)
    # It may be half of a change of the row's key, whose values are kept for the other half.
    stream = [of_other(0, 1), replace(gone, origin=replace(gone.origin, lsn=5)), of_other(2, 2)]
    report = apply_records(stream, target, TABLES, NOTHING_CARRIED, Holds())
    assert report.error is None
    assert {table: told["code"] for table, told in report.troubles.items()} == {
        str(TABLE): "SINK_TABLE_UNREADABLE"
    }
    assert report.troubles[str(TABLE)]["hint"] == f"headrace resnapshot SOURCE {TABLE}"
    assert {stored.key for stored in target.scan(OTHER)} == {"1", "2"}
