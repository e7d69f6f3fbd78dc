"""Keys that the Redis server or somebody else takes away are missed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from redis import Redis

from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.schema import TableId, TableSchema
from sinks.contract.story import ORDERS, at, delete, order, state
from sinks.redis import RedisSink, audit
from sinks.redis.audit import BASE
from tests.support.redis_server import Server, redis_server
from tests.support.stack import RunningStack
from tests.support.waiting import elapse, until

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
        with pytest.raises(SinkUnavailable) as caught:
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
    with pytest.raises(SinkUnavailable) as caught:
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
    with pytest.raises(SinkUnavailable):
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


def until_told(sink: RedisSink, schemas: Sequence[TableSchema] = (ORDERS,)) -> dict[TableId, str]:
    """Look as the engine does until all keys have been counted; return the tables that are there."""
    counts = f"{sink.config.key_prefix}__headrace:counts"
    bases = [f"{sink._table(schema).keys.head}{BASE}" for schema in schemas]
    found: dict[TableId, str] = {}

    def counted() -> bool:
        found.clear()
        found.update(sink.identities(schemas) or {})
        return len(found) < len(schemas) or all(sink._client.redis.hmget(counts, bases))

    until(counted)
    return found


@pytest.fixture
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one walk follow another at once."""
    monkeypatch.setattr(audit, "_LEAST_REST_S", 0.0)
    monkeypatch.setattr(audit, "_SHARE", 0)


@pytest.mark.usefixtures("_no_rest")
@pytest.mark.parametrize("style", ["json", "hash"])
def test_a_single_key_that_somebody_deletes_is_missed(server: Server, style: str) -> None:
    sink = server.sink(format=style)
    for schema in (ORDERS, OTHERS):
        sink.prepare(schema)
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, 600)])
    sink.apply(OTHERS, [structs.replace(order(1, at(1)), table=OTHERS.table)])
    first = until_told(sink, (ORDERS, OTHERS))
    assert first.keys() == {ORDERS.table, OTHERS.table}
    server.redis.delete(f"{server.prefix}orders:77")
    until(lambda: (sink.identities([ORDERS, OTHERS]) or {}).keys() == {OTHERS.table})
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, 600)])
    again = until_told(sink, (ORDERS, OTHERS))
    assert again[OTHERS.table] == first[OTHERS.table]
    assert again[ORDERS.table] != first[ORDERS.table]
    for _ in range(5):
        assert sink.identities([ORDERS, OTHERS]) == again, "it is told once"
    # One that is told to go later has not gone yet.
    sink.apply(ORDERS, [delete(ORDERS, 5, at(900))])
    server.redis.expire(f"{server.prefix}orders:78", 3_000)
    until(
        lambda: (
            sink.identities([ORDERS, OTHERS]) == again and server.redis.ttl(f"{server.prefix}orders:78") == -1
        )
    )
    for schema in (ORDERS, OTHERS):
        sink.drop(schema)
    assert list(server.redis.scan_iter(match=f"{server.prefix}*")) == []
    sink.close()


@pytest.mark.usefixtures("_no_rest")
@pytest.mark.parametrize("style", ["json", "hash"])
@pytest.mark.parametrize("seed", range(4))
def test_keys_are_missed_if_and_only_if_somebody_else_removed_some(
    server: Server, style: str, seed: int
) -> None:
    """Whatever rows are written, deleted, written again, emptied; whatever others do with keys of theirs."""
    chance = random.Random(seed)
    sink = server.sink(format=style)
    sink.prepare(ORDERS)
    told, offset = until_told(sink), 0
    for turn in range(60):
        changes = []
        for key in chance.sample(range(80), chance.randint(1, 40)):
            offset += 1
            gone = chance.random() < 0.4
            changes.append(delete(ORDERS, key, at(offset)) if gone else order(key, at(offset)))
        sink.apply(ORDERS, changes)
        if chance.random() < 0.1:
            offset += 1
            sink.truncate(ORDERS, at(offset))
        server.redis.set(f"{server.prefix}mine{chance.randint(1, 5)}", "x")
        server.redis.delete(f"{server.prefix}mine{chance.randint(1, 5)}")
        assert sink.identities([ORDERS]) == told, f"turn {turn}"
    for _ in range(3):
        assert until_told(sink) == told
    sink.apply(ORDERS, [order(100 + n, at(offset + 1 + n)) for n in range(3)])
    rows = sorted(server.redis.scan_iter(match=f"{server.prefix}orders:*"))
    server.redis.unlink(*chance.sample(rows, chance.randint(1, 2)))
    sink.apply(ORDERS, [order(200, at(offset + 10)), delete(ORDERS, 201, at(offset + 11))])
    until(lambda: sink.identities([ORDERS]) == {})
    sink.close()


@pytest.mark.usefixtures("_no_rest")
def test_rows_that_a_shadow_brings_are_counted_anew(server: Server) -> None:
    sink = server.sink()
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, 50)])
    told = until_told(sink)
    shadow = RedisSink("cache", sink.config.model_copy(update={"shadow": "r1"}))
    shadow.prepare(ORDERS)
    shadow.apply(ORDERS, [order(number, at(100 + number)) for number in range(1, 30)])
    shadow.settle({("orders", 0): 190})
    shadow.switch(ORDERS)
    shadow.close()
    assert len(state(sink, ORDERS)) == 29
    for _ in range(3):
        assert (until_told(sink)).keys() == told.keys()
    server.redis.delete(f"{server.prefix}orders:7")
    until(lambda: sink.identities([ORDERS]) == {})
    sink.close()


def test_the_rights_that_are_told_are_enough(server: Server) -> None:
    place = server.url.rpartition("@")[2]
    server.do("ACL", "SETUSER", "narrow", "on", ">pw", f"~{server.prefix}*", "+info")
    try:
        narrow = server.sink(url=f"redis://narrow:pw@{place}")
        (refused,) = narrow.check()
        assert refused.code == "REDIS_FORBIDDEN"
        server.do(
            "ACL", "SETUSER", "narrow", *(word for word in refused.hint.rstrip(".").split() if word[0] == "+")
        )
        assert "REDIS_FORBIDDEN" not in server.codes(narrow)
        narrow.prepare(ORDERS)
        narrow.apply(ORDERS, [order(1, at(1)), order(2, at(2))])
        narrow.apply(ORDERS, [delete(ORDERS, 2, at(3))])
        assert narrow.progress([("orders", 0)]) == {}
        narrow.settle({("orders", 0): 3})
        assert until_told(narrow)
        assert len(state(narrow, ORDERS)) == 1
        narrow.truncate(ORDERS, at(9))
        narrow.drop(ORDERS)
        narrow.close()
    finally:
        server.do("ACL", "DELUSER", "narrow")


@pytest.mark.usefixtures("_no_rest")
def test_keys_of_others_among_a_tables_keys_are_not_missed_when_they_go(server: Server) -> None:
    sink = server.sink()
    sink.prepare(ORDERS)
    server.redis.set(f"{server.prefix}orders:1:lock", "mine")
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, 20)])
    told = until_told(sink)
    for _ in range(3):
        server.redis.set(f"{server.prefix}orders:2:lock", "mine")
        assert sink.identities([ORDERS]) == told
        server.redis.delete(f"{server.prefix}orders:1:lock", f"{server.prefix}orders:2:lock")
        assert sink.identities([ORDERS]) == told
    sink.close()


@pytest.mark.usefixtures("_no_rest")
@pytest.mark.parametrize("style", ["json", "hash"])
@pytest.mark.parametrize("moved", ["renamed", "replaced"])
def test_a_row_whose_key_somebody_gives_another_name_is_missed(
    server: Server, monkeypatch: pytest.MonkeyPatch, style: str, moved: str
) -> None:
    monkeypatch.setattr(audit, "_EVERY_S", 0.0)
    sink = server.sink(format=style)
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, 20)])
    told = until_told(sink)
    for _ in range(3):
        assert sink.identities([ORDERS]) == told
    if moved == "renamed":
        server.redis.rename(f"{server.prefix}orders:7", f"{server.prefix}orders:zz")
    else:
        with server.redis.pipeline(transaction=True) as both:
            both.delete(f"{server.prefix}orders:7").set(f"{server.prefix}orders:77", "mine").execute()
    until(lambda: sink.identities([ORDERS]) == {})
    sink.close()


@pytest.mark.usefixtures("_no_rest")
def test_a_redis_that_is_put_back_while_its_keys_are_walked_over(
    server: Server, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was counted before a look does not hold afterwards."""
    monkeypatch.setattr(audit, "_PART_S", 0.0)
    monkeypatch.setattr(audit, "_PAGE", 10)
    operators: Any = Redis.from_url(stack.redis_admin_url)
    sink = server.sink()
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, 100)])
    told = until_told(sink)
    kept = {key: operators.dump(key) for key in operators.keys(f"{server.prefix}*")}
    sink.apply(ORDERS, [order(number, at(number)) for number in range(100, 300)])
    server.redis.set(f"{server.prefix}mine", "x")
    sink.identities([ORDERS])
    server.redis.delete(f"{server.prefix}mine")
    sink.identities([ORDERS])  # a walk is under way
    operators.unlink(*operators.keys(f"{server.prefix}*"))
    for key, value in kept.items():
        operators.restore(key, 0, value, replace=True)
    operators.close()
    for _ in range(60):
        assert sink.identities([ORDERS]) == told
    sink.close()
