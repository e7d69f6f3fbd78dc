"""Rows that somebody else writes to in Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.model.outcome import APPLIED
from sinks.contract.story import ORDERS, at, expected, order, state
from tests.support.redis_server import Server, redis_server
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack


@pytest.fixture
def server(stack: RunningStack) -> Iterator[Server]:
    with redis_server(stack) as opened:
        yield opened


@pytest.mark.parametrize("style", ["json", "hash"])
def test_what_somebody_writes_to_a_row_goes_with_its_next_change(server: Server, style: str) -> None:
    key = server.prefix + "orders:1"
    with closing(server.sink(format=style)) as sink:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(1))])
        for _ in range(20):
            if style == "hash":
                server.redis.hset(key, "item", "theirs")
            else:
                server.redis.set(key, server.redis.get(key).replace('"cup"', '"theirs"'))
        assert [row["item"] for row, _ in state(sink, ORDERS).values()] == ["theirs"]
        assert sink.apply(ORDERS, [order(1, at(2), item="after")]) == [APPLIED]
        assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(2), item="after")])
