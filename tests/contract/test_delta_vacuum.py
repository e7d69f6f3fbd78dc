"""Files of the lake that may go and files that may not, with the clock moved: what is in use always stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.model.outcome import APPLIED
from sinks.contract.story import ORDERS, at, delete, expected, order, state
from sinks.delta import DeltaSink
from tests.support.waiting import elapse

BOTH = pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "hiding"])


def aged(table: Path, hours: float, *names: str) -> None:
    """Make files of a table look older than they are."""
    then = time.time() - hours * 3600
    for path in [table / name for name in names] or [*table.glob("*.parquet"), *table.glob("*.bin")]:
        os.utime(path, (then, then))


def ids(delta: DeltaTable) -> list[int]:
    found: list[int] = pa.table(delta.scan()).column("id").to_pylist()
    return sorted(found)


@BOTH
@pytest.mark.parametrize("keep", [0, 900])
def test_what_is_in_use_stays_however_old_it_is(
    tmp_path: Path, vectors: bool, keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.delta.files._ROWS", 4096)
    config = DeltaSink.Config(path=tmp_path, deletion_vectors=vectors, keep_replaced_seconds=keep)
    sink = DeltaSink("lake", config)
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(n, at(n)) for n in range(20_000)])
    sink.apply(ORDERS, [order(n, at(50_000 + n), item="new") for n in range(0, 20_000, 400)])
    sink.apply(ORDERS, [delete(ORDERS, n, at(60_000 + n)) for n in range(7, 20_000, 400)])
    rows = {n: order(n, at(n)) for n in range(20_000) if n % 400 != 7}
    rows |= {n: order(n, at(50_000 + n), item="new") for n in range(0, 20_000, 400)}
    table = tmp_path / "public" / "orders"
    assert bool(list(table.glob("*.bin"))) == vectors
    for hours in (2, 30):
        aged(table, hours)
        again = DeltaSink("lake", config)
        again.prepare(ORDERS)
        assert again.apply(ORDERS, [order(30_000 + hours, at(70_000 + hours))]) == [APPLIED]
        assert not again.maintain(60)
        rows[30_000 + hours] = order(30_000 + hours, at(70_000 + hours))
        assert state(again, ORDERS) == expected(ORDERS, rows.values())
        assert ids(DeltaTable(str(table))) == sorted(rows)


@BOTH
def test_an_older_version_is_readable_for_as_long_as_the_table_says(tmp_path: Path, vectors: bool) -> None:
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path, deletion_vectors=vectors))
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(n, at(n)) for n in range(100)])
    table = tmp_path / "public" / "orders"
    opened = DeltaTable(str(table))
    asked = opened.metadata().configuration["delta.deletedFileRetentionDuration"]
    assert asked == "interval 900 seconds"
    for turn in range(1, 6):
        sink.apply(ORDERS, [order(n, at(turn * 1000 + n)) for n in range(100)])
    aged(table, 2)
    again = DeltaSink("lake", sink.config)
    again.prepare(ORDERS)
    again.apply(ORDERS, [delete(ORDERS, 3, at(9000))])
    again.maintain(60)
    assert ids(opened) == list(range(100))
    assert ids(DeltaTable(str(table), version=2)) == list(range(100))


def test_a_table_says_itself_how_long_what_was_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.delta.vacuum._EVERY", 0)
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path, keep_replaced_seconds=3600))
    sink.prepare(ORDERS)
    table = tmp_path / "public" / "orders"
    for turn in range(3):
        sink.apply(ORDERS, [order(1, at(turn))])
    assert len(list(table.glob("*.parquet"))) == 3
    DeltaTable(str(table)).alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 1 second"}
    )
    elapse(1.1)
    sink.apply(ORDERS, [order(1, at(9))])
    assert len(list(table.glob("*.parquet"))) == 2


@BOTH
def test_what_nobody_needs_goes_and_what_a_stranger_is_about_to_commit_stays(
    tmp_path: Path, vectors: bool
) -> None:
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path, deletion_vectors=vectors))
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(1, at(1))])
    table = tmp_path / "public" / "orders"
    names = [
        "part-1e9f1f3a-52f6-4c44-8e67-26b5a07d5b10.snappy.parquet",  # of a process that died
        "part-00000-1e9f1f3a-52f6-4c44-8e67-26b5a07d5b11-c000.snappy.parquet",
        "deletion_vector_1e9f1f3a-52f6-4c44-8e67-26b5a07d5b12.bin",
    ]
    for name in names:
        (table / name).write_bytes(b"half a file")
    for hours, left in ((2, names[1:]), (30, [])):
        aged(table, hours, *(name for name in names if (table / name).exists()))
        again = DeltaSink("lake", sink.config)
        again.prepare(ORDERS)
        again.maintain(60)
        assert [name for name in names if (table / name).exists()] == left


@BOTH
def test_reading_writes_nothing(tmp_path: Path, vectors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.delta.files._ROWS", 256)
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path, deletion_vectors=vectors))
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(n, at(n)) for n in range(1000)])
    sink.apply(ORDERS, [order(n, at(5000 + n)) for n in range(0, 1000, 17)])
    sink.settle({("shop.public.orders", 0): 6000})
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    reader = DeltaSink("lake", sink.config)
    assert len(list(reader.scan(ORDERS))) == 1000
    assert dict(reader.progress()) == {("shop.public.orders", 0): 6000}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_the_keys_of_a_lake_are_in_memory_once(tmp_path: Path) -> None:
    first, second = (DeltaSink("lake", DeltaSink.Config(path=tmp_path)) for _ in range(2))
    first.prepare(ORDERS)
    first.apply(ORDERS, [order(n, at(n)) for n in range(1000)])
    assert second.apply(ORDERS, [order(1, at(5000))]) == [APPLIED]
    assert first._index is second._index
    first.close()
    assert second.apply(ORDERS, [order(2, at(5001))]) == [APPLIED]
