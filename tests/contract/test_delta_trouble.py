"""What is wrong with a lake is said as it is, and only what can get better by itself is asked again."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.outcome import APPLIED, STALE
from sinks.contract.story import ORDERS, at, delete, order
from sinks.delta import DeltaSink
from sinks.delta.hole import missing_commit
from sinks.delta.table import LakeTable
from sinks.delta.trouble import named
from tests.support.patience import WAIT_S

ROWS = [order(n, at(n)) for n in range(5)]


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path))
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [*ROWS, delete(ORDERS, 9, at(9))])
    return sink


def said(sink: DeltaSink) -> SinkError:
    with pytest.raises(SinkError) as caught:
        DeltaSink("lake", sink.config).apply(ORDERS, [order(1, at(100))])
    assert "0:" not in caught.value.message  # no stack trace of a library
    return caught.value


@pytest.mark.parametrize("how", ["gap", "garbage", "emptied"])
def test_a_damaged_log_is_said_and_not_asked_again(tmp_path: Path, sink: DeltaSink, how: str) -> None:
    sink.apply(ORDERS, [order(1, at(50))])
    commit = tmp_path / "public" / "orders" / "_delta_log" / f"{1:020d}.json"
    if how == "gap":
        commit.unlink()
    else:
        commit.write_text("{no commit\n" if how == "garbage" else "")
    error = said(sink)
    assert not isinstance(error, SinkUnavailable)
    assert error.code == "DELTA_LOG_UNREADABLE"
    assert "headrace resnapshot SOURCE public.orders" in error.hint


@pytest.mark.parametrize("away", [1, 2])
def test_a_commit_that_somebody_removes_is_noticed_while_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    monkeypatch.setattr("sinks.delta.standing._EVERY_S", 0.0)
    monkeypatch.setattr("sinks.delta.standing._SHARE", 0)
    place = (order(1, at(1)).origin.topic, 0)
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path))
    sink.prepare(ORDERS)
    for n in range(3):
        sink.apply(ORDERS, [order(n, at(n))])
        sink.settle({place: n})
    assert dict(sink.progress([place])) == {place: 2}
    commit = tmp_path / "public" / "orders" / "_delta_log" / f"{away:020d}.json"
    commit.rename(tmp_path / "away")
    assert dict(sink.progress([place])) == {}
    with pytest.raises(SinkError) as caught:
        sink.prepare(ORDERS)
    assert caught.value.code == "DELTA_LOG_UNREADABLE"
    assert f"version {away} is missing" in caught.value.message
    (tmp_path / "away").rename(commit)
    assert dict(sink.progress([place])) == {place: 2}
    sink.prepare(ORDERS)
    assert sink.apply(ORDERS, [order(4, at(4))]) == [APPLIED]


def test_a_table_whose_directory_goes_during_a_look_at_it_is_told_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.delta.standing._EVERY_S", 0.0)
    monkeypatch.setattr("sinks.delta.standing._SHARE", 0)
    place = (order(1, at(1)).origin.topic, 0)
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path))
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(1, at(1))])
    sink.settle({place: 1})
    assert dict(sink.progress([place])) == {place: 1}

    def going(table: Path) -> int | None:
        shutil.rmtree(table)
        return missing_commit(table)

    monkeypatch.setattr("sinks.delta.standing.missing_commit", going)
    assert dict(sink.progress([place])) == {}


def test_damaged_tombstones_are_said(tmp_path: Path, sink: DeltaSink) -> None:
    (tmp_path / "_headrace" / "public" / "orders.tombstones").write_bytes(b"no database" * 100)
    assert said(sink).code == "DELTA_TOMBSTONES_UNREADABLE"


def test_who_was_killed_as_the_first_tombstone_was_made_leaves_a_file_that_works(
    tmp_path: Path,
) -> None:
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path))
    sink.prepare(ORDERS)
    file = tmp_path / "_headrace" / "public" / "orders.tombstones"
    file.parent.mkdir(exist_ok=True)
    file.touch()
    assert sink.apply(ORDERS, [order(1, at(4))]) == [APPLIED]
    sink.apply(ORDERS, [delete(ORDERS, 1, at(5))])
    assert sink.apply(ORDERS, [order(1, at(4))]) == [STALE]


def test_a_damaged_data_file_is_said(tmp_path: Path, sink: DeltaSink) -> None:
    for file in (tmp_path / "public" / "orders").glob("*.parquet"):
        file.write_bytes(b"no parquet")
    error = said(sink)
    assert error.code == "DELTA_FILE_UNREADABLE"
    assert not isinstance(error, SinkUnavailable)


def test_a_reader_of_all_rows_is_told_of_a_file_that_is_gone_or_damaged(
    tmp_path: Path, sink: DeltaSink
) -> None:
    (file,) = (tmp_path / "public" / "orders").glob("*.parquet")
    for damage in (lambda: file.write_bytes(b"no parquet"), file.unlink):
        damage()
        with pytest.raises(SinkError) as caught:
            list(sink.scan(ORDERS))
        assert caught.value.code == "DELTA_FILE_UNREADABLE"
        assert caught.value.table == ORDERS.table
        assert not isinstance(caught.value, SinkUnavailable)


@pytest.mark.parametrize(
    ("ending", "kept", "said"),
    [
        (".parquet", None, "is missing in"),
        (".bin", None, "is missing in"),
        (".parquet", slice(100), "was cut or overwritten: it has 100 bytes instead of"),
        (".parquet", slice(0), "was cut or overwritten: it has 0 bytes instead of"),
        (".bin", slice(-1), "in the lake "),
        (".parquet", "more", "was cut or overwritten"),
    ],
)
def test_a_file_that_is_gone_or_cut_is_noticed_while_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, kept: slice | str | None, said: str
) -> None:
    monkeypatch.setattr("sinks.delta.standing._EVERY_S", 0.0)
    monkeypatch.setattr("sinks.delta.standing._SHARE", 0)
    place = (order(1, at(1)).origin.topic, 0)
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path, deletion_vectors=True))
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(n, at(n)) for n in range(20_000)])
    sink.apply(ORDERS, [delete(ORDERS, 1, at(20_060))])
    sink.settle({place: 20_060})
    again = DeltaSink("lake", sink.config)
    for one in (sink, again):
        assert dict(one.progress([place])) == {place: 20_060}
    lake = LakeTable(tmp_path / "public" / "orders", "orders")
    lake.refresh()
    file = next(lake.path / one.path for one in lake.needed_files() if one.path.endswith(ending))
    content = file.read_bytes()
    if kept is None:
        file.unlink()
    else:
        file.write_bytes(content[kept] if isinstance(kept, slice) else content + content)
    for one in (sink, again):
        assert dict(one.progress([place])) == {}
        with pytest.raises(SinkError) as caught:
            one.prepare(ORDERS)
        assert caught.value.code == "DELTA_FILE_UNREADABLE"
        assert caught.value.table == ORDERS.table
        assert said in caught.value.message
        assert "headrace resnapshot SOURCE public.orders" in caught.value.hint
    file.write_bytes(content)
    for one in (sink, again):
        one.prepare(ORDERS)
        assert dict(one.progress([place])) == {place: 20_060}


FULL = """
import resource, signal, sys
from pathlib import Path
from headrace.model.errors import SinkUnavailable
from sinks.contract.story import ORDERS, at, order
from sinks.delta import DeltaSink
from sinks.delta.hole import missing_commit
from sinks.delta.table import LakeTable

sink = DeltaSink("lake", DeltaSink.Config(path=Path(sys.argv[1])))
sink.prepare(ORDERS)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    sink.apply(ORDERS, [order(n, at(n), item=f"{n}" * 9) for n in range(5000)])
except SinkUnavailable as error:
    print(error.code, error.message)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
sink.apply(ORDERS, [order(n, at(n), item=f"{n}" * 9) for n in range(5000)])
print(len(list(sink.scan(ORDERS))))
"""


def test_a_file_the_system_refuses_leaves_nothing_and_the_next_attempt_goes_through(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        check=False,
        timeout=WAIT_S,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first.startswith("DELTA_FILE_SYSTEM The lake cannot write public.orders: File too large")
    assert second == "5000"
    assert len(list((tmp_path / "public" / "orders").glob("*.parquet"))) == 1


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "DELTA_DISK_FULL"),
        (errno.EDQUOT, "DELTA_DISK_FULL"),
        (errno.EACCES, "DELTA_PERMISSION"),
        (errno.EROFS, "DELTA_PERMISSION"),
        (errno.EIO, "DELTA_FILE_SYSTEM"),
    ],
)
def test_what_the_system_refuses_is_said_by_its_reason(tmp_path: Path, number: int, code: str) -> None:
    error = named(OSError(number, os.strerror(number)), tmp_path, "public.orders")
    assert isinstance(error, SinkUnavailable)
    assert error.code == code
    assert str(tmp_path) in error.hint
