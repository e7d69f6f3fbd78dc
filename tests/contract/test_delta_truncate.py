"""A TRUNCATE of a table of the lake: as large as the table may be, it takes the room of one of its files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.model.outcome import APPLIED, STALE
from sinks.contract.story import ORDERS, at, expected, order, state
from sinks.delta import DeltaSink

_FILE = 1_024


def _peak(sink: DeltaSink, path: Path, files: int) -> int:
    """Return the most bytes that a TRUNCATE of a table of so many files needs beyond what is there."""
    sink.prepare(ORDERS)
    rows = files * _FILE
    sink.apply(ORDERS, [order(n, at(n)) for n in range(rows)])
    delta = DeltaTable(str(path / "public" / "orders"))
    assert (delta.count(), len(delta.file_uris())) == (rows, files)
    tracemalloc.start()
    try:
        assert sink.truncate(ORDERS, at(rows + 5)) == rows
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert DeltaTable(delta.table_uri).count() == 0
    # None of the keys is forgotten, in whatever file it was.
    old = [order(n, at(n + 1)) for n in range(0, rows, _FILE - 1)]
    assert sink.apply(ORDERS, old) == [STALE] * len(old)
    return peak


def test_a_truncate_lists_no_more_keys_at_once_than_a_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.delta.files._ROWS", _FILE)
    little, much = (
        _peak(DeltaSink("lake", DeltaSink.Config(path=path)), path, files)
        for path, files in ((tmp_path / "little", 2), (tmp_path / "much", 32))
    )
    assert much < 2 * little


@pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "hiding"])
def test_a_truncate_of_some_rows_of_each_file_leaves_the_others(
    tmp_path: Path, vectors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.delta.files._ROWS", 256)
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path, deletion_vectors=vectors))
    sink.prepare(ORDERS)
    changes = [order(n, at(n, partition=int(n % 9 == 0))) for n in range(1_000)]
    assert sink.apply(ORDERS, changes) == [APPLIED] * len(changes)
    gone = changes[::9]
    assert sink.truncate(ORDERS, at(2_000, partition=1)) == len(gone)
    assert state(sink, ORDERS) == expected(ORDERS, [c for c in changes if c not in gone])
    assert sink.truncate(ORDERS, at(2_000, partition=1)) == 0
    assert sink.apply(ORDERS, [gone[3]]) == [STALE]
