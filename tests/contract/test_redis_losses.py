"""Keys that the Redis server or somebody else takes away are missed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from headrace.model.errors import SinkError, SinkWentBack
from headrace.model.schema import TableId
from sinks.contract.story import ORDERS, at, order, state
from tests.support.redis_server import Server, redis_server
from tests.support.stack import RunningStack
from tests.support.waiting import elapse

pytestmark = pytest.mark.stack

OTHERS = replace(ORDERS, table=TableId("public", "others"))


@pytest.fixture
def server(stack: RunningStack) -> Iterator[Server]:
    with redis_server(stack) as opened:
        yield opened


def test_evicted_keys_are_noticed_and_every_table_is_to_be_filled_again(server: Server) -> None:
    sink = server.sink()
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(number, at(number), note="x" * 900) for number in range(1, 400)])
    first = sink.identities([ORDERS])
    assert first
    assert sink.identities([ORDERS]) == first
    server.do("CONFIG", "SET", "maxmemory", int(server.redis.info("memory")["used_memory"]) - 100_000)
    server.do("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    try:
        server.redis.set(f"{server.prefix}another", "y" * 10_000)
        assert len(state(sink, ORDERS)) < 399
        with pytest.raises(SinkError) as caught:
            sink.identities([ORDERS])
        assert caught.value.code == "REDIS_EVICTS"
    finally:
        server.do("CONFIG", "SET", "maxmemory", "0")
        server.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert sink.identities([ORDERS]) == {}  # no target is the one that was filled
    sink.prepare(ORDERS)
    told = sink.identities([ORDERS])
    assert told
    assert told != first
    assert sink.identities([ORDERS]) == told  # it is told once
    sink.close()


def test_what_a_check_tells_an_operator_to_set_is_set_as_it_is_told(server: Server) -> None:
    sink = server.sink()
    server.do("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    server.do("CONFIG", "SET", "appendonly", "no")
    told = {finding.code: finding.hint for finding in sink.check()}
    for code in ("REDIS_EVICTS", "REDIS_NO_AOF"):
        server.do(*told[code].partition("  ")[0].split())
    assert not {"REDIS_EVICTS", "REDIS_NO_AOF"} & server.codes(sink).keys()
    sink.close()


def test_evictions_are_noticed_though_the_server_counts_anew(server: Server) -> None:
    sink = server.sink()
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(1, at(1))])
    assert sink.identities([ORDERS])
    server.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(SinkError):
            sink.identities([ORDERS])
        server.do("CONFIG", "RESETSTAT")
    finally:
        server.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert sink.identities([ORDERS]) == {}
    sink.drop(ORDERS)
    assert list(server.redis.scan_iter(match=f"{server.prefix}*")) == []
    sink.close()


def test_keys_that_go_right_after_they_were_written_are_missed(server: Server) -> None:
    sink = server.sink()
    sink.prepare(ORDERS)
    assert sink.identities([ORDERS])  # nothing is there yet
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, 5)])
    server.redis.delete(*server.redis.scan_iter(match=f"{server.prefix}orders:*"))
    assert sink.identities([ORDERS]) == {}
    sink.close()


def test_a_backup_that_was_made_and_put_back_within_one_batch_is_noticed(
    server: Server, stack: RunningStack
) -> None:
    operators: Any = Redis.from_url(stack.redis_admin_url)
    sink, place = server.sink(), ("orders", 0)
    sink.prepare(ORDERS)
    assert sink.progress([place]) == {}
    sink.apply(ORDERS, [order(1, at(1))])
    elapse(0.6)
    kept = {key: operators.dump(key) for key in operators.keys(f"{server.prefix}*")}
    sink.apply(ORDERS, [order(2, at(2))])
    elapse(0.6)
    for key, value in kept.items():
        operators.restore(key, 0, value, replace=True)
    operators.close()
    for _ in range(2):  # nor when it is asked again before the next look
        with pytest.raises(SinkWentBack) as caught:
            sink.settle({place: 2})
        assert caught.value.code == "REDIS_PUT_BACK"
        elapse(0.6)
    assert sink.progress([place]) == {}
    sink.apply(ORDERS, [order(number, at(number)) for number in (1, 2)])
    elapse(0.6)
    sink.settle({place: 2})
    assert sink.progress([place]) == {place: 2}
    sink.close()


@pytest.mark.parametrize("rows_too", [True, False], ids=["all", "all but its rows"])
def test_progress_is_not_written_over_a_redis_that_was_put_back(
    server: Server, stack: RunningStack, rows_too: bool
) -> None:
    """Put back between the look and the end of a batch: what it went back to is the only evidence."""
    operators: Any = Redis.from_url(stack.redis_admin_url)
    sink, place = server.sink(), ("orders", 0)
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(1, at(1))])
    sink.settle({place: 1})
    pattern = f"{server.prefix}*" if rows_too else f"{server.prefix}__headrace*"
    assert sink.progress([place]) == {place: 1}
    kept = {key: operators.dump(key) for key in operators.keys(pattern)}
    # The same progress as in the backup, but another batch.
    assert sink.progress([place]) == {place: 1}
    sink.apply(ORDERS, [order(2, at(2))])
    for key, value in kept.items():
        operators.restore(key, 0, value, replace=True)
    operators.close()
    with pytest.raises(SinkWentBack) as caught:
        sink.settle({place: 2})
    assert caught.value.code == "REDIS_PUT_BACK"
    assert sink.progress([place]) == {place: 1}
    sink.apply(ORDERS, [order(2, at(2))])
    sink.settle({place: 2})
    assert sink.progress() == {place: 2}
    sink.forget(["orders"])
    sink.drop(ORDERS)
    assert not server.redis.keys(f"{server.prefix}*")
    sink.close()


def test_a_sink_that_was_purged_and_is_used_again_settles(server: Server) -> None:
    """As the engine does when a sink is removed and added again: one object, and nothing was settled yet."""
    sink, place = server.sink(), ("orders", 0)
    for _ in range(2):
        sink.prepare(ORDERS)
        assert sink.progress([]) == {}
        sink.apply(ORDERS, [order(1, at(1))])
        sink.settle({place: 1})
        assert sink.progress([place]) == {place: 1}
        with closing(server.sink()) as other:
            other.forget(["orders"])
            other.drop(ORDERS)
    sink.close()


def test_marks_of_writers_that_are_gone_do_not_pile_up(server: Server) -> None:
    place = ("orders", 0)
    first = server.sink()
    first.settle({place: 1})
    assert first.progress([place]) == {place: 1}
    for _ in range(120):
        sink = server.sink()
        assert sink.progress([place]) == {place: 1}
        sink.close()
    (marks,) = server.redis.keys(f"{server.prefix}__headrace:moments")
    assert server.redis.hlen(marks) <= 101
    with pytest.raises(SinkWentBack):
        first.settle({place: 2})  # it cannot tell, and looks again
    assert first.progress([place]) == {place: 1}
    first.settle({place: 2})
    first.close()


def test_a_sink_of_very_many_partitions_settles(server: Server) -> None:
    """A script has room for some thousands of values at once only."""
    sink = server.sink()
    places = {(f"topic{number}", partition): number for number in range(250) for partition in range(32)}
    assert sink.progress(list(places)) == {}
    sink.settle(places)
    assert sink.progress(list(places)) == places
    sink.close()
