"""What is wrong with one table of a lake holds up none of the others."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from headrace.model.change import Change
from headrace.model.errors import SinkError
from headrace.model.schema import TableSchema
from sinks.contract.story import ORDERS, at, delete, order, state, table
from sinks.delta import DeltaSink

OTHERS = table("others", {column.name: column.type for column in ORDERS.columns}, ORDERS.key)
TOPICS = {ORDERS: "shop.public.orders", OTHERS: "shop.public.others"}
PLACES = [(topic, 0) for topic in TOPICS.values()]


def of(schema: TableSchema, *offsets: int) -> Sequence[Change]:
    """Return a change of a row of its own at each offset."""
    return [
        msgspec.structs.replace(
            one, table=schema.table, origin=msgspec.structs.replace(one.origin, topic=TOPICS[schema])
        )
        for one in (order(n, at(n)) for n in offsets)
    ]


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    """Return a lake of two tables, of several small files each."""
    made = DeltaSink("lake", DeltaSink.Config(path=tmp_path))
    for schema in TOPICS:
        made.prepare(schema)
        for n in range(6):
            made.apply(schema, of(schema, n))
    made.settle(dict.fromkeys(PLACES, 5))
    return made


def orders_of(sink: DeltaSink) -> Path:
    return Path(sink.config.path) / "public" / "orders"


def damage(directory: Path) -> None:
    for file in directory.glob("*.parquet"):
        file.write_bytes(b"no parquet".ljust(file.stat().st_size, b"!"))


def test_one_that_cannot_be_tidied_is_passed_over(sink: DeltaSink) -> None:
    damage(orders_of(sink))
    files = set(orders_of(sink).parent.glob("others/*.parquet"))
    again = DeltaSink("lake", sink.config)
    for schema in TOPICS:
        again.prepare(schema)
    assert again.maintain(5) is False
    assert set(orders_of(sink).parent.glob("others/*.parquet")) > files  # joined into one more


def test_damaged_tombstones_keep_nobody_from_being_tidied(sink: DeltaSink, tmp_path: Path) -> None:
    sink.apply(ORDERS, [delete(ORDERS, 1, at(9))])
    again = DeltaSink("lake", sink.config)
    for schema in TOPICS:
        again.prepare(schema)
    (tmp_path / "_headrace" / "public" / "orders.tombstones").write_bytes(b"no database" * 100)
    assert again.maintain(5) is False


def test_rows_that_cannot_be_read_are_their_table_s_trouble(sink: DeltaSink) -> None:
    damage(orders_of(sink))
    again = DeltaSink("lake", sink.config)
    with pytest.raises(SinkError) as caught:
        again.rows(ORDERS, [one.key for one in of(ORDERS, 1)])
    assert (caught.value.code, caught.value.table) == ("DELTA_FILE_UNREADABLE", ORDERS.table)
    assert len(again.rows(OTHERS, [one.key for one in of(OTHERS, 1, 2)])) == 2


def in_a_circle(directory: Path) -> None:
    directory.rename(directory.with_suffix(".x"))
    directory.symlink_to(directory)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_directory_that_the_system_refuses_stops_no_other(sink: DeltaSink, fresh: bool) -> None:
    one = DeltaSink("lake", sink.config) if fresh else sink
    one.prepare(ORDERS)
    in_a_circle(orders_of(sink))
    # Nothing of it is proven, so its changes wait; those of the others do not.
    assert dict(one.progress(PLACES)) == {PLACES[1]: 5}
    for act in (lambda: one.prepare(ORDERS), lambda: one.apply(ORDERS, of(ORDERS, 7))):
        with pytest.raises(SinkError) as caught:
            act()
        assert (caught.value.code, caught.value.table) == ("DELTA_FILE_SYSTEM", ORDERS.table)
        assert os.strerror(errno.ELOOP) in caught.value.message
    one.apply(OTHERS, of(OTHERS, 7))
    one.settle({PLACES[1]: 7})
    assert one.maintain(5) is False
    assert dict(one.progress(PLACES)) == {PLACES[1]: 7}

    orders_of(sink).unlink()
    orders_of(sink).with_suffix(".x").rename(orders_of(sink))
    # Whoever asked before it came back makes nothing anew; the next look finds all of it.
    with pytest.raises(SinkError):
        one.prepare(ORDERS)
    assert dict(one.progress(PLACES)) == {PLACES[0]: 5, PLACES[1]: 7}
    one.prepare(ORDERS)
    one.apply(ORDERS, of(ORDERS, 7))
    one.settle({PLACES[0]: 7})
    assert {len(state(one, schema)) for schema in TOPICS} == {7}


def test_what_was_applied_to_one_that_is_refused_before_it_is_settled_is_applied_again(
    sink: DeltaSink,
) -> None:
    for schema in TOPICS:
        sink.apply(schema, of(schema, 6))
    in_a_circle(orders_of(sink))
    sink.settle(dict.fromkeys(PLACES, 6))
    orders_of(sink).unlink()
    orders_of(sink).with_suffix(".x").rename(orders_of(sink))
    assert dict(sink.progress(PLACES)) == {PLACES[0]: 5, PLACES[1]: 6}
    sink.apply(ORDERS, of(ORDERS, 6))
    sink.settle({PLACES[0]: 6})
    assert dict(sink.progress(PLACES)) == dict.fromkeys(PLACES, 6)


def test_a_look_at_many_files_of_one_delays_none_at_the_others(
    sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now = 1_000.0
        looked: list[str] = []

        def monotonic(self) -> float:
            return self.now

        def look(self, directory: Path, _: object) -> None:
            self.looked.append(directory.name)
            self.now += 5.0 if directory.name == "orders" else 0.001

    clock = Clock()
    monkeypatch.setattr("sinks.delta.standing.time", clock)
    monkeypatch.setattr("sinks.delta.standing.unfit_file", clock.look)
    for _ in range(3):
        sink.progress(PLACES)
        clock.now += 30
    assert sorted(clock.looked) == ["orders", "others", "others", "others"]
