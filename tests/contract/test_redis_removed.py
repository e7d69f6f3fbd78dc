"""Keys that somebody takes away from Redis, one or a few of many, are missed by counting."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from redis import Redis

from headrace.model.schema import TableId
from sinks.contract.story import ORDERS, at, delete, order, state
from sinks.redis import RedisSink, audit, walk
from tests.support.redis_server import Server, redis_server, until_told
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

OTHERS = replace(ORDERS, table=TableId("public", "others"))


@pytest.fixture
def server(stack: RunningStack) -> Iterator[Server]:
    with redis_server(stack) as opened:
        yield opened


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
def test_a_key_that_goes_before_its_table_was_counted_is_missed(server: Server, style: str) -> None:
    sink = server.sink(format=style)
    sink.prepare(ORDERS)
    assert sink.identities([ORDERS])
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, 5_000)])
    server.redis.delete(f"{server.prefix}orders:77")
    until(lambda: sink.identities([ORDERS]) == {})
    sink.close()


@pytest.mark.usefixtures("_no_rest")
def test_a_key_is_missed_though_a_shadow_is_filled_meanwhile(server: Server) -> None:
    sink = server.sink()
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, 50)])
    until_told(sink)
    shadow = RedisSink("cache", sink.config.model_copy(update={"shadow": "r1"}))
    shadow.prepare(ORDERS)
    assert sink.identities([ORDERS])
    server.redis.delete(f"{server.prefix}orders:7")
    shadow.apply(ORDERS, [order(number, at(100 + number)) for number in range(1, 30)])
    until(lambda: sink.identities([ORDERS]) == {})
    shadow.drop(ORDERS)
    shadow.close()
    sink.drop(ORDERS)
    assert list(server.redis.scan_iter(match=f"{server.prefix}*")) == []
    sink.close()


@pytest.mark.usefixtures("_no_rest")
@pytest.mark.parametrize("style", ["json", "hash"])
@pytest.mark.parametrize("seed", range(4))
def test_keys_are_missed_if_and_only_if_somebody_else_removed_some(
    server: Server, monkeypatch: pytest.MonkeyPatch, style: str, seed: int
) -> None:
    """Whatever rows are written, deleted, written again, emptied; whatever others do with keys of theirs.

    Odd seeds walk over the keys in small parts, so that rows come and go in all walks.
    """
    if seed % 2:
        monkeypatch.setattr(walk, "_PART_S", 0.0)
        monkeypatch.setattr(walk, "_PAGE", 10)
    chance = random.Random(seed)
    sink = server.sink(format=style)
    sink.prepare(ORDERS)
    told, offset = sink.identities([ORDERS]), 0

    def write() -> None:
        nonlocal offset
        changes = []
        for key in chance.sample(range(80), chance.randint(1, 40)):
            offset += 1
            gone = chance.random() < 0.4
            changes.append(delete(ORDERS, key, at(offset)) if gone else order(key, at(offset)))
        sink.apply(ORDERS, changes)

    for turn in range(60):
        write()
        if chance.random() < 0.1:
            offset += 1
            sink.truncate(ORDERS, at(offset))
        server.redis.set(f"{server.prefix}mine{chance.randint(1, 5)}", "x")
        server.redis.delete(f"{server.prefix}mine{chance.randint(1, 5)}")
        assert sink.identities([ORDERS]) == told, f"turn {turn}"
    offset += 3
    sink.apply(ORDERS, [order(100 + n, at(offset - n)) for n in range(3)])
    rows = sorted(server.redis.scan_iter(match=f"{server.prefix}orders:*"))
    server.redis.unlink(*chance.sample(rows, chance.randint(1, 2)))

    def missed() -> bool:
        write()
        return sink.identities([ORDERS]) == {}

    until(missed)
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
    monkeypatch.setattr(walk, "_PART_S", 0.0)
    monkeypatch.setattr(walk, "_PAGE", 10)
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
