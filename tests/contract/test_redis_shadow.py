"""A large table's shadow takes its place in Redis in several steps, and no row is ever missing."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from redis import Redis

from headrace.observe import failpoints
from sinks.contract.story import ORDERS, at, expected, order, state
from sinks.redis import RedisSink
from sinks.redis.names import glob
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack

PLACE = ("shop.public.orders", 0)
OLD = [order(number, at(number), item="old") for number in range(1, 61)]
NEW = [order(number, at(number + 100), item="new") for number in range(11, 91)]
BOTH = [change.key for change in NEW if change.position.offset <= 160]


@pytest.fixture
def config(stack: RunningStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("sinks.redis.shadow.AT_ONCE", 7)
    prefix = f"s{uuid.uuid4().hex[:10]}:"
    yield RedisSink.Config(url=stack.endpoints.redis_url, key_prefix=prefix)
    with Redis.from_url(stack.endpoints.redis_url) as redis:
        for key in redis.scan_iter(match=glob(prefix) + "*", count=1000):
            redis.unlink(key)


def _ready(config: Any) -> RedisSink:
    with closing(RedisSink("cache", config)) as sink:
        sink.apply(ORDERS, OLD)
        sink.settle({PLACE: 60})
    shadow = RedisSink("cache", config.model_copy(update={"shadow": "r1"}))
    shadow.prepare(ORDERS)
    shadow.apply(ORDERS, NEW)
    shadow.settle({PLACE: 190})
    return shadow


def test_no_row_is_missing_while_a_large_table_is_switched(config: Any) -> None:
    seen: list[tuple[int, frozenset[str]]] = []
    stop = threading.Event()

    def read() -> None:
        with closing(RedisSink("cache", config)) as reader:
            while not stop.is_set():
                rows = reader.rows(ORDERS, BOTH).values()
                seen.append((len(rows), frozenset(stored.row["item"] for stored in rows)))

    with closing(_ready(config)) as shadow, closing(RedisSink("cache", config)) as sink:
        reader = threading.Thread(target=read)
        reader.start()
        try:
            shadow.switch(ORDERS)
        finally:
            stop.wait(0.1)
            stop.set()
            reader.join()
        assert state(sink, ORDERS) == expected(ORDERS, NEW)
    assert {count for count, _ in seen} == {len(BOTH)}
    assert seen[-1] == (len(BOTH), frozenset({"new"}))


def test_a_switch_in_steps_goes_on_wherever_it_was_killed(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = 0
    while True:
        visits = iter(range(100))

        def hit(_name: str, _where: str, visits: Iterator[int] = visits, last: int = killed) -> None:
            if next(visits) == last:
                raise InterruptedError

        with closing(RedisSink("cache", config)) as sink, closing(_ready(config)) as shadow:
            with monkeypatch.context() as patched:
                patched.setattr(failpoints, "hit", hit)
                try:
                    shadow.switch(ORDERS)
                    break
                except InterruptedError:
                    killed += 1
            assert len(sink.rows(ORDERS, BOTH)) == len(BOTH)
            shadow.switch(ORDERS)
            assert state(sink, ORDERS) == expected(ORDERS, NEW)
            assert dict(sink.progress([PLACE])) == {PLACE: 190}
            assert shadow.progress() == {}
            sink.drop(ORDERS)
    assert killed > 15, "pages of renames, pages of removals, and the steps around them"


def test_a_key_of_somebody_else_stays(config: Any) -> None:
    with closing(_ready(config)) as shadow, closing(RedisSink("cache", config)) as sink:
        head = sink.target(ORDERS).facts["key_template"].removesuffix("{id}")
        with Redis.from_url(config.url) as redis:
            redis.set(f"{head}90", "mine")
            shadow.switch(ORDERS)
            assert redis.get(f"{head}90") == b"mine"
            own = f"{config.key_prefix}__headrace:shadow*"
            assert list(redis.scan_iter(match=glob(own[:-1]) + "*")) == []
        assert state(sink, ORDERS) == expected(ORDERS, NEW[:-1])
