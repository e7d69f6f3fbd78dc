"""Whoever reads the lake finds the same rows after every kind of commit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.model.change import Change
from headrace.model.outcome import APPLIED
from headrace.model.schema import Column, LogicalType, TableSchema
from sinks.contract.story import ORDERS, at, delete, expected, order, state, upsert
from sinks.delta import DeltaSink
from tests.support.duck_lake import duck_rows
from tests.support.spark_lake import SparkLake

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(400)]

TOPIC = "shop.public.orders"
WIDER = replace(ORDERS, columns=(*ORDERS.columns, Column("late", LogicalType.INT64)))
COLUMNS = "id, item, _headrace_key, _headrace_version"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkLake]:
    with SparkLake(tmp_path_factory.mktemp("spark")) as spark:
        yield spark


class Lake:
    """A table, what it should hold, and its readers."""

    def __init__(self, path: Path, spark: SparkLake, *, vectors: bool) -> None:
        self.spark = spark
        self.path = str(path / "public" / "orders")
        self.name = f"delta.`{self.path}`"
        self.config = DeltaSink.Config(path=path, deletion_vectors=vectors)
        self.rows: dict[str, Change] = {}
        self.schema: TableSchema = ORDERS
        self.sink = DeltaSink("lake", self.config)
        self.sink.prepare(ORDERS)
        self.offset = 0

    def batch(self, *changes: Change) -> None:
        assert self.sink.apply(self.schema, changes) == [APPLIED] * len(changes)
        for change in changes:
            if change.op.value == "delete":
                self.rows.pop(change.key.id, None)
            else:
                self.rows[change.key.id] = change
        self.offset = max([self.offset, *(change.position.offset for change in changes)])
        self.sink.settle({(TOPIC, 0): self.offset})

    def everybody_agrees(self, after: str) -> None:
        wanted = sorted((key, str(change.position.version)) for key, change in self.rows.items())
        by_spark = self.spark.sql(f"SELECT {COLUMNS} FROM {self.name}")
        assert sorted((row[2], row[3]) for row in by_spark) == wanted, f"Spark, after {after}"
        found = pa.table(DeltaTable(self.path).scan()).to_pylist()
        keyed = sorted((row["_headrace_key"], str(row["_headrace_version"])) for row in found)
        assert keyed == wanted, f"delta-rs, after {after}"
        by_duck = duck_rows(self.path, COLUMNS)
        assert sorted((row[2], str(row[3])) for row in by_duck) == wanted, f"DuckDB, after {after}"
        assert sorted(str(row[1]) for row in by_duck) == sorted(str(row["item"]) for row in found)
        assert sorted(row[1] for row in by_spark) == sorted(str(row["item"]) for row in found)
        assert state(self.sink, self.schema) == expected(self.schema, self.rows.values()), after

    def say(self, text: str) -> None:
        self.spark.sql(text.format(t=self.name))


@pytest.fixture(params=[False, True], ids=["rewriting", "hiding"])
def lake(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkLake, monkeypatch: pytest.MonkeyPatch
) -> Lake:
    monkeypatch.setattr("sinks.delta.files._ROWS", 256)
    lake = Lake(tmp_path, spark, vectors=request.param)
    lake.batch(*(order(n, at(n)) for n in range(1, 1001)))
    return lake


def test_every_reader_finds_the_same_rows_after_every_kind_of_commit(lake: Lake) -> None:
    lake.everybody_agrees("inserts")
    lake.batch(*(order(n, at(2000 + n), item="new") for n in range(5, 1000, 90)))
    lake.everybody_agrees("updates")
    lake.batch(*(delete(ORDERS, n, at(4000 + n)) for n in range(6, 1000, 90)))
    lake.everybody_agrees("deletes")
    hidden = list(Path(lake.path).glob("*.bin"))
    assert bool(hidden) == lake.config.deletion_vectors
    lake.sink.prepare(WIDER)
    lake.schema = WIDER
    before = dict(lake.rows)
    lake.batch(*(upsert(WIDER, _wide(n), at(6000 + n)) for n in range(2000, 2020)))
    # Rows of before have the new column, NULL.
    lake.rows = {k: upsert(WIDER, {**c.row, "late": None}, c.position) for k, c in before.items()} | {
        k: c for k, c in lake.rows.items() if k not in before
    }
    lake.everybody_agrees("a new column")
    while lake.sink.maintain(60):
        pass
    lake.everybody_agrees("compaction")
    lake.say(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
    )
    lake.sink = DeltaSink("lake", lake.config)
    lake.batch(upsert(WIDER, _wide(3000), at(9100)))
    assert len(list(Path(lake.path).glob("*.parquet"))) == len(DeltaTable(lake.path).file_uris())
    lake.everybody_agrees("removal of old files")
    DeltaTable(lake.path).create_checkpoint()
    lake.everybody_agrees("a checkpoint")
    lake.sink.truncate(WIDER, at(9050))
    lake.rows = {key: change for key, change in lake.rows.items() if change.position.offset >= 9050}
    lake.everybody_agrees("a truncate")


def _wide(n: int) -> dict[str, object]:
    return {"id": n, "item": f"item {n}", "price": "1.50", "note": None, "late": n}
