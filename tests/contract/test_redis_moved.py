"""A primary that has moved to another server behind its address is followed; its connections are alive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from headrace.model.errors import SinkError, SinkWentBack
from headrace.model.outcome import APPLIED
from sinks.contract.story import ORDERS, at, expected, order, state
from sinks.redis import RedisSink, moment
from tests.support.redis_server import other_redis
from tests.support.waiting import until
from tests.support.wire import Wire, wire

pytestmark = pytest.mark.stack

PLACE = ("shop.public.orders", 0)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two servers, of which one address leads to the first; and a sink at that address."""

    old: Any
    new: Any
    sink: RedisSink
    address: Wire
    here: tuple[str, int]
    there: tuple[str, int]

    def replicate(self) -> None:
        self.new.execute_command("REPLICAOF", *self.here)
        until(lambda: self.new.info("replication")["master_link_status"] == "up")
        until(lambda: self.new.dbsize() == self.old.dbsize())

    def fail_over(self) -> None:
        self.new.execute_command("REPLICAOF", "NO", "ONE")
        self.old.execute_command("REPLICAOF", *self.there)
        self.address.lead_to(*self.there)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with other_redis(first) as was, other_redis(second) as becomes:
        here, there = place_of(was), place_of(becomes)
        with wire(*here) as address, closing(client(was)) as old, closing(client(becomes)) as new:
            config = RedisSink.Config(url=f"redis://127.0.0.1:{address.port}")
            with closing(RedisSink("cache", config)) as sink:
                yield Pair(old, new, sink, address, here, there)


def test_a_primary_that_has_become_a_replica_is_left_for_the_one_that_its_address_leads_to(
    pair: Pair,
) -> None:
    sink = pair.sink
    sink.prepare(ORDERS)
    assert sink.apply(ORDERS, [order(1, at(1))]) == [APPLIED]
    sink.settle({PLACE: 1})
    pair.replicate()
    pair.fail_over()
    for act in (
        lambda: sink.progress([PLACE]),
        lambda: sink.apply(ORDERS, [order(2, at(2))]) == [APPLIED],
        lambda: sink.settle({PLACE: 2}),
    ):
        until(lambda act=act: done(act))  # type: ignore[misc]
    assert dict(sink.progress([PLACE])) == {PLACE: 2}
    assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(1)), order(2, at(2))])


def test_a_replica_that_lacks_rows_of_a_batch_does_not_count_as_having_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes over when the batch is applied, and has all that was written before its rows."""
    monkeypatch.setattr(moment, "_BEAT_S", 60.0)
    sink = pair.sink
    sink.prepare(ORDERS)
    assert sink.progress([PLACE]) == {}
    pair.replicate()
    pair.new.execute_command("REPLICAOF", "NO", "ONE")
    assert sink.apply(ORDERS, [order(1, at(1))]) == [APPLIED]
    pair.address.lead_to(*pair.there)
    pair.old.client_kill_filter(_type="normal")

    def went_back() -> bool:
        try:
            sink.settle({PLACE: 1})
        except SinkWentBack:
            return True
        except SinkError:
            return False
        pytest.fail("a batch is settled that is not there")

    until(went_back)
    assert sink.progress([PLACE]) == {}
    assert sink.apply(ORDERS, [order(1, at(1))]) == [APPLIED]
    sink.settle({PLACE: 1})
    assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(1))])


def place_of(url: str) -> tuple[str, int]:
    split = urlsplit(url)
    assert split.hostname
    assert split.port
    return split.hostname, split.port


def client(url: str) -> Any:
    return Redis.from_url(url)


def done(act: Any) -> bool:
    """Return whether something can be done, as the engine tries it again."""
    try:
        act()
    except SinkError:
        return False
    return True
