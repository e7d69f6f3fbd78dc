"""A lake, or one table of it, is restored from a backup while a batch is being applied."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.errors import SinkError, SinkWentBack
from sinks.base import Place
from sinks.contract.story import ORDERS, at, expected, order, state
from sinks.delta import DeltaSink
from sinks.delta.config import data_path

PLACE: Place = (order(1, at(1)).origin.topic, 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def sink(root: Path) -> Iterator[DeltaSink]:
    """Yield a sink with three batches in its lake."""
    sink = DeltaSink("lake", DeltaSink.Config(path=root))
    sink.prepare(ORDERS)
    for number in (1, 2, 3):
        shutil.copytree(root, backup(root, number))
        batch(sink, number)
    yield sink
    sink.close()


def backup(root: Path, number: int) -> Path:
    """Return where the lake is kept as it was before a batch."""
    return root.with_name(f"before-{number}")


def batch(sink: DeltaSink, number: int) -> None:
    sink.progress([PLACE])
    sink.apply(ORDERS, [order(number, at(number))])
    sink.settle({PLACE: number})


def put_back(root: Path, what: Path, lost: int) -> None:
    """Put a folder back to what it was before its last ``lost`` batches."""
    shutil.rmtree(what)
    shutil.copytree(backup(root, 4 - lost) / what.relative_to(root), what)


def assert_brought_forward(sink: DeltaSink, lost: int, last: int = 4) -> None:
    """Check that it tells what it lacks, and takes it."""
    has = sink.progress([PLACE]).get(PLACE, 0)
    assert has <= 3 - lost
    if not has:
        sink.prepare(ORDERS)
        sink.forget([PLACE[0]])
    for number in range(has + 1, last + 1):
        batch(sink, number)
    assert sink.progress([PLACE]) == {PLACE: last}
    assert state(sink, ORDERS) == expected(ORDERS, [order(n, at(n)) for n in range(1, last + 1)])


WHOLE = pytest.mark.parametrize("whole", [True, False], ids=["the lake", "one table"])
LOST = pytest.mark.parametrize("lost", [1, 2])


@WHOLE
@LOST
@pytest.mark.parametrize("applied", [True, False], ids=["behind it", "nothing"])
def test_progress_is_not_written_over_a_lake_that_was_put_back(
    root: Path, sink: DeltaSink, whole: bool, lost: int, applied: bool
) -> None:
    """What it went back to is the only evidence of what it lacks."""
    assert sink.progress([PLACE]) == {PLACE: 3}
    if applied:
        sink.apply(ORDERS, [order(4, at(4))])
    put_back(root, root if whole else data_path(root, ORDERS.table), lost)
    if whole or applied:
        with pytest.raises(SinkWentBack) as caught:
            sink.settle({PLACE: 4})
        assert caught.value.code == "DELTA_PUT_BACK"
    else:
        sink.settle({PLACE: 4})  # the table's witness tells it at the next look
    assert_brought_forward(sink, lost)


@WHOLE
@LOST
@pytest.mark.parametrize("fresh", [True, False], ids=["first batch", "later batch"])
def test_nothing_is_written_to_a_table_that_was_put_back_before_its_progress_is_looked_at(
    root: Path, sink: DeltaSink, whole: bool, lost: int, fresh: bool
) -> None:
    """Else as many commits as it went back would hide that it did."""
    other = DeltaSink("lake", sink.config) if fresh else sink
    assert other.progress([PLACE]) == {PLACE: 3}
    put_back(root, root if whole else data_path(root, ORDERS.table), lost)
    if not (whole and fresh):  # else its witness went back as well, and it is known as what it is
        for _ in range(2):
            with pytest.raises(SinkError) as caught:
                other.apply(ORDERS, [order(4, at(4))])
            assert (caught.value.code, caught.value.table) == ("DELTA_PUT_BACK", ORDERS.table)
            assert isinstance(caught.value, SinkWentBack)  # nobody asks again before the next look
        assert not other.maintain(1.0)
    if whole:
        with pytest.raises(SinkWentBack):
            other.settle({PLACE: 4})
    assert_brought_forward(other, lost)


def test_a_table_of_before_it_was_made_anew_is_noticed(root: Path, sink: DeltaSink) -> None:
    where = data_path(root, ORDERS.table)
    former = root.with_name("former")
    where.rename(former)
    assert sink.progress([PLACE]) == {}
    sink.prepare(ORDERS)
    sink.forget([PLACE[0]])
    for number in (1, 2, 3):
        batch(sink, number)
    shutil.rmtree(where)
    former.rename(where)
    with pytest.raises(SinkError) as caught:
        sink.apply(ORDERS, [order(4, at(4))])
    assert caught.value.code == "DELTA_PUT_BACK"
    assert sink.progress([PLACE]) == {}
