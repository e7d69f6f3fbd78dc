"""A small change may leave out columns of a large row: many of them are merged a part at a time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from headrace.model.outcome import APPLIED
from sinks.base import Sink
from sinks.contract.story import ORDERS, at, order, state
from tests.support.redis_server import Server as RedisServer
from tests.support.redis_server import redis_server
from tests.support.search import search_server
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(300)]

ROWS = 300
LARGE = "ab " * 350_000


@pytest.fixture(params=["elasticsearch", "redis"])
def sink(request: pytest.FixtureRequest, stack: RunningStack) -> Iterator[Sink]:
    opened = search_server(stack) if request.param == "elasticsearch" else redis_server(stack)
    with opened as server:
        if isinstance(server, RedisServer):
            server.do("SCRIPT", "FLUSH")  # calls that are to be made twice are not kept either
        sink = server.sink()
        sink.prepare(ORDERS)
        yield sink
        sink.close()


def test_small_changes_of_large_rows_are_merged_a_part_at_a_time(sink: Sink) -> None:
    for number in range(ROWS):
        assert sink.apply(ORDERS, [order(number, at(number), note=LARGE)]) == [APPLIED]
    changes = [order(n, at(n + 1_000), item="new", absent=["note"]) for n in range(ROWS)]
    tracemalloc.start()
    try:
        outcomes = sink.apply(ORDERS, changes)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcomes == [APPLIED] * ROWS
    assert most < ROWS * len(LARGE) / 2
    held = state(sink, ORDERS)
    assert len(held) == ROWS
    assert all((row["item"], row["note"]) == ("new", LARGE) for row, _ in held.values())
