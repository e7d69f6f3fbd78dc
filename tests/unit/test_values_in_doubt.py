"""Which values are looked up, what takes their place, and how a table waits that cannot be asked about."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from connectors.doubt import cleared, doubtful
from headrace.model.change import Change, Op, Origin
from headrace.model.key import Key
from headrace.model.position import Position
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.memory import MemorySink
from spark_jobs.apply import apply_records
from spark_jobs.held import Holds
from spark_jobs.tables import Tables
from tests.support.small_table import NOTHING_CARRIED
from tests.support.small_table import SCHEMA as PLAIN

TABLE = TableId("public", "v")
SCHEMA = TableSchema(
    TABLE,
    (
        Column("id", LogicalType.INT64),
        Column("n", LogicalType.NUMERIC, 1),
        Column("m", LogicalType.ENUM, 1),
        Column("i", LogicalType.INTERVAL),
        Column("t", LogicalType.TEXT, 1),
    ),
    ("id",),
)
ZERO = "P0Y0M0DT0H0M0S"


def change(key: int, op: Op = Op.UPSERT, **row: Any) -> Change:
    full = {"id": key, "n": ["1"], "m": ["a"], "i": "P1Y", "t": None, **row} if op is Op.UPSERT else {}
    origin = Origin("v", 0, key)
    return Change(TABLE, Key.of([str(key)]), op, full, frozenset(), Position(1, key), origin)


class Database:
    """What is found under which key; remembers what it was asked."""

    def __init__(self, **rows: Mapping[str, Any]) -> None:
        self.rows = {Key.of([name.lstrip("k")]): row for name, row in rows.items()}
        self.asked: list[set[str | None]] = []

    def __call__(
        self, schema: TableSchema, keys: Sequence[Key], columns: Sequence[str], seen: Collection[int]
    ) -> Mapping[Key, Mapping[str, Any]]:
        assert set(columns) <= {"n", "m", "i", "t"}
        self.asked.append({key.parts[0] for key in keys})
        return {key: self.rows[key] for key in keys if key in self.rows}


def test_a_table_without_such_columns_has_nothing_in_doubt() -> None:
    assert doubtful(PLAIN.columns) == {}
    assert list(doubtful(SCHEMA.columns)) == ["n", "m", "i", "t"]


def test_nothing_is_asked_when_no_value_is_in_doubt() -> None:
    database = Database()
    changes = [change(1), change(2, Op.DELETE), change(3, t=None)]
    assert cleared(SCHEMA, changes, database) == (changes, {})
    assert database.asked == []


def test_what_the_database_tells_takes_the_place_of_what_is_in_doubt_and_of_nothing_else() -> None:
    database = Database(
        k1={"n": ["NaN"], "m": ["a", None], "i": None},
        k2={"n": None, "m": None, "i": "-infinity"},
        k4={"n": [["1"], ["2"]], "m": None, "i": None},
    )
    changes = [change(1, n=None), change(2, i=ZERO, m=None), change(3, n=None), change(4, n=None), change(5)]
    told, bad = cleared(SCHEMA, changes, database)
    assert database.asked == [{"1", "2", "3", "4"}]
    assert [dict(one.row) for one in told] == [
        dict(change(1, n=["NaN"]).row),
        dict(change(2, i="-infinity", m=None).row),
        dict(change(3, n=None).row),  # gone by now: its delete is on its way
        dict(change(5).row),
    ]
    assert [(key.id, why.code) for key, why in bad.items()] == [("4", "VALUE_IN_DOUBT")]


OBJECTS = ["[Ljava.lang.String;@23bb8443", "[Ljava.lang.String;@1a"]


@pytest.mark.parametrize("told", [[None, None], OBJECTS, ["[[Ljava.lang.Object;@0"]])
def test_what_may_be_an_array_of_several_dimensions_is_looked_up_and_refused_where_it_is(told: Any) -> None:
    database = Database(k1={"t": [["a"], ["b"]]}, k2={"t": told})
    kept, bad = cleared(SCHEMA, [change(1, t=told), change(2, t=told)], database)
    assert database.asked == [{"1", "2"}]
    assert [dict(one.row) for one in kept] == [dict(change(2, t=told).row)]
    assert [(key.id, why.code) for key, why in bad.items()] == [("1", "VALUE_IN_DOUBT")]


@pytest.mark.parametrize("told", [[], [None, "a"], ["[Ljava.lang.String;@1a", "a"], ["[x"], None])
def test_other_arrays_are_believed(told: Any) -> None:
    database = Database()
    assert cleared(SCHEMA, [change(1, t=told)], database)[1] == {}
    assert database.asked == []


def test_rows_that_no_key_can_ask_for_are_refused_where_a_value_is_in_doubt() -> None:
    keyed = TableSchema(TABLE, SCHEMA.columns, ("t",))
    database = Database()
    sure = change(2, t=["b"])
    kept, bad = cleared(keyed, [change(1, n=None, t=["a"]), sure], database)
    assert (kept, list(bad), database.asked) == ([sure], [Key.of(["1"])], [])


def test_a_table_that_cannot_be_asked_about_waits_alone() -> None:
    sink = MemorySink("m", MemorySink.Config(store=uuid.uuid4().hex))
    sink.prepare(SCHEMA)
    tables = Tables({TABLE: SCHEMA}, {"v": (TABLE, 1)})
    report = apply_records([change(1), change(2, n=None)], sink, tables, NOTHING_CARRIED, Holds())
    assert report.error is None
    assert report.troubles[str(TABLE)]["code"] == "VALUE_IN_DOUBT"
    assert report.rejects == []
