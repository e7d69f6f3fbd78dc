"""The lake beyond the contract: crashes, other writers, many commits, columns, what lies beside the data."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from msgspec import structs

from headrace.model.change import Change
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.finding import Severity
from headrace.model.key import Key
from headrace.model.outcome import APPLIED, STALE
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.contract import table
from sinks.contract.story import ORDERS, at, delete, expected, order, state, upsert
from sinks.delta import DeltaSink
from sinks.delta.config import data_path
from tests.support.patience import WAIT_S
from tests.support.waiting import elapse

BOTH = pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "hiding"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def sink(root: Path) -> Iterator[DeltaSink]:
    sink = DeltaSink("lake", DeltaSink.Config(path=root))
    sink.prepare(ORDERS)
    yield sink
    sink.close()


def plain(path: Path) -> list[dict[str, object]]:
    """Return id and item as a reader without any of our code sees them."""
    found = DeltaTable(str(path)).to_pyarrow_table(columns=["id", "item"]).sort_by("id")
    rows: list[dict[str, object]] = found.to_pylist()
    return rows


# ---------------------------------------------------------------- crashes

DIE = """
import sys
from pathlib import Path
from sinks.contract.story import ORDERS, at, delete, order
from sinks.delta import DeltaSink

sink = DeltaSink("lake", DeltaSink.Config(path=Path(sys.argv[1])))
sink.prepare(ORDERS)
sink.apply(ORDERS, [order(1, at(11), item="new"), delete(ORDERS, 2, at(12)), order(3, at(13), item="new")])
sink.settle({("shop.public.orders", 0): 13})
print("survived")
"""


@pytest.mark.parametrize("point", ["delta.before_commit", "delta.after_commit"])
def test_killed_around_the_commit_the_replay_ends_the_same(root: Path, sink: DeltaSink, point: str) -> None:
    old = [order(1, at(1), item="old"), order(2, at(2), item="old")]
    sink.apply(ORDERS, old)
    sink.settle({("shop.public.orders", 0): 2})
    killed = subprocess.run(
        [sys.executable, "-c", DIE, str(root)],
        env={**os.environ, "HEADRACE_FAILPOINTS": f"{point}=kill"},
        capture_output=True,
        check=False,
        timeout=WAIT_S,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()

    (again := DeltaSink("lake", sink.config)).prepare(ORDERS)
    assert dict(again.progress()) == {("shop.public.orders", 0): 2}
    new = [order(1, at(11), item="new"), order(3, at(13), item="new")]
    assert state(again, ORDERS) == expected(ORDERS, new if point == "delta.after_commit" else old)
    # An older change of the deleted row must not come between the crash and the replay.
    assert again.apply(ORDERS, [order(2, at(5), item="between")]) == [STALE]
    replay = [new[0], delete(ORDERS, 2, at(12)), new[1]]
    assert again.apply(ORDERS, replay) == [APPLIED] * 3
    assert state(again, ORDERS) == expected(ORDERS, new)


def test_files_of_a_commit_that_never_was_are_swept(root: Path, sink: DeltaSink) -> None:
    orphan = root / "public" / "orders" / "part-orphan.snappy.parquet"
    orphan.write_bytes(b"half a file")
    foreign = orphan.with_name("part-foreign.parquet")
    foreign.write_bytes(b"another writer is about to commit it")
    os.utime(orphan, (1, 1))
    again = DeltaSink("lake", DeltaSink.Config(path=root, keep_replaced_seconds=0))
    again.prepare(ORDERS)
    again.apply(ORDERS, [order(1, at(1))])
    assert not orphan.exists()
    assert foreign.exists()


# ---------------------------------------------------------------- other writers


@BOTH
def test_another_writer_compacts_and_vacuums_all_the_time(
    tmp_path: Path, vectors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.delta.files._ROWS", 64)
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path, deletion_vectors=vectors))
    sink.prepare(ORDERS)
    path = str(tmp_path / "public" / "orders")
    stop = threading.Event()
    compactions = []

    def meddle() -> None:
        while not stop.is_set():
            other = DeltaTable(path)
            # The stranger may lose the race for a version or a file; we may not.
            with contextlib.suppress(DeltaError, OSError):
                other.optimize.compact()
                compactions.append(other.version())
                other.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    stranger = threading.Thread(target=meddle)
    stranger.start()
    newest: dict[Key, Change] = {}
    try:
        for turn in range(1000):
            if turn >= 20 and len(compactions) >= 5:
                break
            batch = [order(n, at(turn * 100 + n), item=f"{turn}") for n in range(turn % 7, 90, 1 + turn % 5)]
            for _ in range(20):
                with contextlib.suppress(SinkUnavailable):
                    assert sink.apply(ORDERS, batch) == [APPLIED] * len(batch)
                    break
            else:
                pytest.fail("twenty times unavailable")
            newest |= {change.key: change for change in batch}
    finally:
        stop.set()
        stranger.join()
    assert len(compactions) >= 5
    assert state(sink, ORDERS) == expected(ORDERS, newest.values())


def test_a_table_taken_away_and_put_back_is_seen_anew(root: Path, sink: DeltaSink) -> None:
    sink.apply(ORDERS, [order(n, at(n)) for n in range(5)])
    other = DeltaSink("lake", sink.config)
    other.drop(ORDERS)
    with pytest.raises(SinkError) as caught:
        sink.apply(ORDERS, [order(9, at(9))])
    assert caught.value.code == "DELTA_TABLE_MISSING"
    other.prepare(ORDERS)
    other.apply(ORDERS, [order(1, at(7), item="other")])
    with pytest.raises(SinkError) as caught:
        sink.apply(ORDERS, [order(1, at(3))])
    assert caught.value.code == "DELTA_PUT_BACK"
    sink.progress()
    assert sink.apply(ORDERS, [order(1, at(3)), order(2, at(8))]) == [STALE, APPLIED]
    assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(7), item="other"), order(2, at(8))])


def test_a_data_file_taken_away_is_said(root: Path, sink: DeltaSink) -> None:
    sink.apply(ORDERS, [order(n, at(n)) for n in range(5)])
    for file in (root / "public" / "orders").glob("*.parquet"):
        file.unlink()
    with pytest.raises(SinkError) as caught:
        DeltaSink("lake", sink.config).apply(ORDERS, [order(1, at(9))])
    assert caught.value.code == "DELTA_FILE_UNREADABLE"


# ---------------------------------------------------------------- many commits


@pytest.mark.deep
@BOTH
def test_three_hundred_commits_do_not_wear_it_out(tmp_path: Path, vectors: bool) -> None:
    config = DeltaSink.Config(path=tmp_path, deletion_vectors=vectors, keep_replaced_seconds=0)
    sink = DeltaSink("lake", config)
    sink.prepare(ORDERS)
    base = [order(n, at(n), item="base") for n in range(20_000)]
    sink.apply(ORDERS, base)
    newest = {change.key: change for change in base}
    times = []
    for turn in range(300):
        offset = 100_000 + turn * 10
        batch = [order((turn * 7919 + k * 13) % 25_000, at(offset + k), item=f"{turn}") for k in range(10)]
        begin = time.perf_counter()
        assert sink.apply(ORDERS, batch) == [APPLIED] * 10
        times.append(time.perf_counter() - begin)
        newest |= {change.key: change for change in batch}
    path = tmp_path / "public" / "orders"
    open_files = DeltaTable(str(path)).file_uris()
    assert len(open_files) < 12
    assert len(list(path.glob("*.parquet"))) < 12
    assert list((path / "_delta_log").glob("*.checkpoint.parquet"))
    # Medians, and generously: the machine is shared, a slope is not.
    assert sorted(times[250:])[25] < 4 * sorted(times[:50])[25] + 0.05
    assert state(sink, ORDERS) == expected(ORDERS, newest.values())
    begin = time.perf_counter()
    DeltaTable(str(path))
    assert time.perf_counter() - begin < 2


def test_hidden_rows_survive_a_restart_and_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.delta.files._ROWS", 256)
    config = DeltaSink.Config(path=tmp_path, deletion_vectors=True)
    first = DeltaSink("lake", config)
    first.prepare(ORDERS)
    first.apply(ORDERS, [order(n, at(n)) for n in range(1000)])
    first.apply(ORDERS, [order(n, at(5000 + n), item="new") for n in range(0, 1000, 17)])
    assert list((tmp_path / "public" / "orders").glob("*.bin"))
    second = DeltaSink("lake", config)
    second.prepare(ORDERS)
    second.apply(ORDERS, [delete(ORDERS, n, at(9000 + n)) for n in range(0, 1000, 19)])
    wanted = {n: order(n, at(n)) for n in range(1000)}
    wanted |= {n: order(n, at(5000 + n), item="new") for n in range(0, 1000, 17)}
    left = [change for n, change in wanted.items() if n % 19]
    assert state(second, ORDERS) == expected(ORDERS, left)
    assert not second.maintain(60)
    assert state(first, ORDERS) == expected(ORDERS, left)
    assert DeltaTable(str(tmp_path / "public" / "orders")).count() == len(left)


def test_replaced_files_stay_for_readers_and_then_go(tmp_path: Path) -> None:
    for seconds, left in ((600, 2), (0, 1)):
        root = tmp_path / str(seconds)
        sink = DeltaSink("lake", DeltaSink.Config(path=root, keep_replaced_seconds=seconds))
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(1))])
        sink.apply(ORDERS, [order(1, at(2))])
        assert len(list((root / "public" / "orders").glob("*.parquet"))) == left


def test_six_tables_at_once(tmp_path: Path) -> None:
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path))
    schemas = [replace(ORDERS, table=TableId("public", f"orders{n}")) for n in range(6)]
    batches = [[structs.replace(order(n, at(n)), table=s.table) for n in range(500)] for s in schemas]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(sink.prepare, schemas))
        for _ in range(3):
            for outcomes in pool.map(sink.apply, schemas, batches):
                assert outcomes == [APPLIED] * 500
    for schema, batch in zip(schemas, batches, strict=True):
        assert state(sink, schema) == expected(schema, batch)


# ---------------------------------------------------------------- columns


def test_columns_come_widen_and_go(root: Path, sink: DeltaSink) -> None:
    narrow = table(
        "grown", {"id": LogicalType.INT32, "n": LogicalType.INT16, "gone": LogicalType.TEXT}, ["id"]
    )
    sink.prepare(narrow)
    sink.apply(narrow, [upsert(narrow, {"id": 1, "n": 7, "gone": "x"}, at(1))])
    wide = table("grown", {"id": LogicalType.INT32, "n": LogicalType.INT64, "late": LogicalType.DATE}, ["id"])
    sink.prepare(wide)
    second = upsert(wide, {"id": 2, "n": 2**40, "late": 1}, at(2))
    third = upsert(wide, {"id": 1, "n": 8, "late": None}, at(3), absent=["late"])
    assert sink.apply(wide, [second, third]) == [APPLIED] * 2
    whole = upsert(wide, {"id": 1, "n": 8, "late": None}, at(3))
    assert state(sink, wide) == expected(wide, [whole, second])
    assert plain_columns(root / "public" / "grown")[:4] == ["id", "n", "gone", "_headrace_key"]


def plain_columns(path: Path) -> list[str]:
    return [field.name for field in DeltaTable(str(path)).schema().fields]


def test_a_column_that_becomes_something_else_is_refused(sink: DeltaSink) -> None:
    before = table("changed", {"id": LogicalType.INT32, "n": LogicalType.TEXT}, ["id"])
    sink.prepare(before)
    with pytest.raises(SinkError) as caught:
        sink.prepare(table("changed", {"id": LogicalType.INT32, "n": LogicalType.DATE}, ["id"]))
    assert caught.value.code == "DELTA_COLUMN_TYPE"


def test_names_that_differ_by_case_only_get_numbers(root: Path, sink: DeltaSink) -> None:
    names = ["id", "Name", "name", "_headrace_key"]
    schema = table("cased", dict.fromkeys(names, LogicalType.TEXT), ["id"])
    sink.prepare(schema)
    change = upsert(schema, {name: f"of {name}" for name in names}, at(1))
    assert sink.apply(schema, [change]) == [APPLIED]
    assert state(sink, schema) == expected(schema, [change])
    assert sink.target(schema).facts["renamed"] == {"name": "name~2", "_headrace_key": "_headrace_key~2"}


# ---------------------------------------------------------------- beside the data


def test_a_plain_reader_sees_live_rows_only(root: Path, sink: DeltaSink) -> None:
    sink.apply(ORDERS, [order(n, at(n), item=f"item {n}") for n in range(5)])
    sink.apply(ORDERS, [delete(ORDERS, 3, at(10)), order(4, at(11), item="new")])
    path = Path(str(sink.target(ORDERS).facts["path"]))
    assert plain(path) == [
        {"id": 0, "item": "item 0"},
        {"id": 1, "item": "item 1"},
        {"id": 2, "item": "item 2"},
        {"id": 4, "item": "new"},
    ]
    assert len(DeltaTable(str(path)).to_pandas()) == 4


def test_tombstones_are_forgotten_after_their_horizon(root: Path) -> None:
    sink = DeltaSink("lake", DeltaSink.Config(path=root))
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [delete(ORDERS, 1, at(5))])
    assert not sink.maintain(60)
    assert sink.apply(ORDERS, [order(1, at(4))]) == [STALE]
    forgetful = DeltaSink("lake", DeltaSink.Config(path=root, tombstone_hours=1e-6))
    forgetful.prepare(ORDERS)
    elapse(1.1)  # the file counts in whole seconds
    assert not forgetful.maintain(60)
    assert forgetful.apply(ORDERS, [order(1, at(4))]) == [APPLIED]


def test_progress_of_a_table_that_went_back_is_not_believed(root: Path, sink: DeltaSink) -> None:
    other = table("others", {"id": LogicalType.INT32}, ["id"])
    sink.prepare(other)
    sink.apply(ORDERS, [order(1, at(1))])
    sink.settle({("shop.public.orders", 0): 1, ("shop.public.else", 0): 3})
    log = root / "public" / "orders" / "_delta_log"
    newest = max(log.glob("*.json"))
    newest.unlink()
    again = DeltaSink("lake", sink.config)
    assert dict(again.progress()) == {("shop.public.else", 0): 3}
    content = json.loads((root / "_headrace" / "progress-lake.json").read_text())
    assert content["offsets"]["shop.public.orders"] == {"0": 1}


def test_a_directory_has_one_owner_until_its_last_table_is_gone(root: Path, sink: DeltaSink) -> None:
    other = DeltaSink("other", sink.config)
    assert [f.code for f in other.check() if f.severity is Severity.ERROR] == ["DELTA_PATH_TAKEN"]
    with pytest.raises(SinkError) as caught:
        other.prepare(ORDERS)
    assert caught.value.code == "DELTA_PATH_TAKEN"
    sink.drop(ORDERS)
    assert not [f for f in other.check() if f.severity is Severity.ERROR]


def test_a_stranger_table_in_the_way_is_not_touched(root: Path, sink: DeltaSink) -> None:
    schema = TableSchema(TableId("public", "x"), (Column("id", LogicalType.INT32),), ("id",))
    sink.prepare(schema)
    (root / "public" / "x").rename(root / "public" / "y")
    with pytest.raises(SinkError) as caught:
        sink.prepare(replace(schema, table=TableId("public", "y")))
    assert caught.value.code == "DELTA_PATH_TAKEN"


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path / "file" / "lake"))
    assert [f.code for f in sink.check()] == ["DELTA_PATH"]
    with pytest.raises(SinkUnavailable) as caught:
        sink.prepare(ORDERS)
    assert caught.value.code == "DELTA_FILE_SYSTEM"


def test_no_name_leads_out_of_the_lake(tmp_path: Path) -> None:
    names = (
        "..",
        ".",
        "../../etc",
        "/etc/passwd",
        "a/../../b",
        "~",
        "~root",
        "_headrace",
        "\x00",
        "a\nb",
        "∕",
        "．．",
    )
    places = {data_path(tmp_path, TableId(schema, name)) for schema in names for name in names}
    assert len(places) == len(names) ** 2
    for place in places:
        assert Path(os.path.normpath(place)) == place
        assert place.parent.parent == tmp_path
        assert not {place.name, place.parent.name} & {"_headrace", "_delta_log"}


@pytest.mark.parametrize("path", ["s3://bucket/lake", "file://host/lake"])
def test_only_directories_are_taken(path: str) -> None:
    with pytest.raises(ValueError, match="local or mounted"):
        DeltaSink.Config(path=path)
