"""Rows of a file are what was written, whoever has moved them; of a part any number is taken out."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinks.delta.files import DataFile, parts, within, without


@pytest.mark.parametrize("gone", [[], [0], [99], [0, 99], [3, 4, 5, 50], range(100), range(0, 100, 2)])
@pytest.mark.parametrize("long", [1, 1_000])
def test_the_others_stay_in_their_order(gone: list[int], long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.delta.files._LONG", long)
    left = without(pa.table({"n": range(100)}), np.array(gone, np.int64))
    assert left["n"].to_pylist() == [n for n in range(100) if n not in gone]


def test_rows_of_a_part_are_counted_from_its_start() -> None:
    assert within(np.array([1, 5, 9, 10]), 5, 5).tolist() == [0, 4]


def test_times_that_spark_has_moved_are_the_same(tmp_path: Path) -> None:
    """It writes them in twelve bytes; read as nanoseconds they would end in 2262."""
    schema = pa.schema({"at": pa.timestamp("us", "UTC")})
    times = [dt.datetime(year, 12, 31, tzinfo=dt.timezone.utc) for year in (1, 1600, 2024, 9999)]
    written = pa.table({"at": pa.array(times, schema.field("at").type)})
    pq.write_table(written, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    file = DataFile("a.parquet", 1, len(times))
    ((_, read),) = parts(tmp_path, file, schema)
    assert read["at"].to_pylist() == times
