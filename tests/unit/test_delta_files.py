"""Rows are taken out of a part of a file, however many they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sinks.delta.files import within, without


@pytest.mark.parametrize("gone", [[], [0], [99], [0, 99], [3, 4, 5, 50], range(100), range(0, 100, 2)])
@pytest.mark.parametrize("long", [1, 1_000])
def test_the_others_stay_in_their_order(gone: list[int], long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.delta.files._LONG", long)
    left = without(pa.table({"n": range(100)}), np.array(gone, np.int64))
    assert left["n"].to_pylist() == [n for n in range(100) if n not in gone]


def test_rows_of_a_part_are_counted_from_its_start() -> None:
    assert within(np.array([1, 5, 9, 10]), 5, 5).tolist() == [0, 4]
