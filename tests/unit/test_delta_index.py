"""The index finds what is there and nothing else, however little of it fits into memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.delta import index
from sinks.delta.files import DataFile
from sinks.delta.hashes import equal_pairs, hashes
from sinks.delta.index import KeyIndex
from sinks.delta.shape import KEY, VERSION

NUMBERS = st.lists(st.integers(0, 30)).map(sorted)


@given(NUMBERS, NUMBERS)
@settings(deadline=None)
def test_pairs_are_all_pairs_of_equal_numbers(some: list[int], others: list[int]) -> None:
    first, second = equal_pairs(np.array(some, np.uint64), np.array(others, np.uint64))
    wanted = [(n, m) for n, a in enumerate(some) for m, b in enumerate(others) if a == b]
    assert sorted(zip(first.tolist(), second.tolist(), strict=True)) == wanted


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40)), st.integers(0, 3))
@settings(deadline=None)
def test_a_text_has_one_number_wherever_it_stands(texts: list[str], skipped: int) -> None:
    whole = hashes(pa.array(texts, pa.string()))
    assert hashes(pa.array(texts, pa.string())[skipped:]).tolist() == whole[skipped:].tolist()
    assert [hashes(pa.array([text]))[0] for text in texts] == whole.tolist()


def test_numbers_of_different_texts_differ() -> None:
    texts = [f"{n}" for n in range(50_000)] + [f"a long key {n:040d}" for n in range(50_000)]
    texts += ["x" * n for n in range(250)] + ["\x00" * n for n in range(1, 250)]
    assert len(set(hashes(pa.array(texts)).tolist())) == len(texts)


@pytest.mark.parametrize("capacity", [0, 3_000, 1 << 20])
@pytest.mark.parametrize("alike", [False, True])
def test_it_finds_what_is_there(
    tmp_path: Path, capacity: int, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if alike:
        monkeypatch.setattr(index, "hashes", lambda texts: hashes(texts) % np.uint64(3))
    cache = KeyIndex(capacity)
    files = []
    for number in range(4):
        rows = pa.table({KEY: [f"k{n}" for n in range(number, 100, 4)], VERSION: range(number, 100, 4)})
        pq.write_table(rows, tmp_path / f"{number}.parquet")
        deleted = np.array([1, 3]) if number == 2 else None
        files.append(DataFile(f"{number}.parquet", 1, len(rows), deleted=deleted))
        if number % 2:
            cache.add(tmp_path / f"{number}.parquet", rows)
    sought = ["k7", "none", "k2", "k6", "k99", "k3", "k14"]
    for _ in range(2):
        found = cache.locate(tmp_path, files, pa.array(sought))
        seen = {
            (place.file.path, int(row)): (sought[which], int(version))
            for place in found
            for row, which, version in zip(place.rows, place.sought, place.versions, strict=True)
        }
        assert seen == {
            ("2.parquet", 0): ("k2", 2),
            ("3.parquet", 0): ("k3", 3),
            ("3.parquet", 1): ("k7", 7),
            ("3.parquet", 24): ("k99", 99),
        }
        assert all((np.diff(place.rows) > 0).all() for place in found)
    cache.forget(tmp_path / "3.parquet")
    assert len(cache.locate(tmp_path, files, pa.array(["k3"]))) == 1
