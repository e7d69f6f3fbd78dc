"""What the lake does in idle moments: tidy up, and be in nobody's way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from deltalake import DeltaTable

from sinks.contract.story import ORDERS, at, expected, order, state
from sinks.delta import DeltaSink
from tests.support.patience import WAIT_S


@pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "hiding"])
def test_many_small_files_become_one_and_readers_notice_nothing(
    tmp_path: Path, vectors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.delta.files._ROWS", 256)
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path, deletion_vectors=vectors))
    sink.prepare(ORDERS)
    base = [order(n, at(n), item="base") for n in range(1000)]
    late = [order(n, at(5000 + n), item="late") for n in range(0, 1000, 9)]
    new = [order(2000 + n, at(9000 + n)) for n in range(6)]
    for batch in [base, late, *([change] for change in new)]:
        sink.apply(ORDERS, batch)
    newest = {change.key: change for change in [*base, *late, *new]}.values()
    path = str(tmp_path / "public" / "orders")
    before = DeltaTable(path)

    assert sink.maintain(0)
    assert DeltaTable(path).version() == before.version()
    assert not sink.maintain(60)
    after = DeltaTable(path)
    assert len(after.file_uris()) < len(before.file_uris())
    assert after.count() == len(newest)
    assert state(sink, ORDERS) == expected(ORDERS, newest)
    # Whoever had it open before can still read all of it.
    assert all(Path(unquote(urlsplit(uri).path)).exists() for uri in before.file_uris())
    assert not sink.maintain(60)
    assert DeltaTable(path).version() == after.version()


def test_a_table_that_is_written_to_or_gone_is_left_alone(tmp_path: Path) -> None:
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path))
    sink.prepare(ORDERS)
    for n in range(6):
        sink.apply(ORDERS, [order(n, at(n))])
    path = str(sink.target(ORDERS).facts["path"])
    version = DeltaTable(path).version()
    with ThreadPoolExecutor(1) as pool, sink._writer(ORDERS.table).lock:
        assert not pool.submit(sink.maintain, 60).result(timeout=WAIT_S)
    assert DeltaTable(path).version() == version
    DeltaSink("lake", sink.config).drop(ORDERS)
    assert not sink.maintain(60)
