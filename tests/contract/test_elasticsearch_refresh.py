"""When searches see what was written: within a second or so, whether or not anybody has searched lately."""

from __future__ import annotations

import pytest

from sinks.contract.story import ORDERS, at, order
from sinks.elasticsearch.client import path
from tests.support.search import Server
from tests.support.waiting import elapse, until

pytestmark = pytest.mark.stack

_SEEN_S = 2.5
"""The cluster looks each second at what there is to refresh, or to be refreshed by the next search."""


def found(server: Server) -> int:
    count = server.ask("GET", path(server.alias(), "_count"))["count"]
    assert isinstance(count, int)
    return count


def test_the_first_search_after_a_pause_finds_what_was_written_meanwhile(server: Server) -> None:
    sink = server.sink()
    sink.prepare(ORDERS)
    server.ask("PUT", path(server.alias(), "_settings"), {"index.search.idle.after": "1ms"})
    for number in range(1, 4):
        sink.apply(ORDERS, [order(number, at(number))])
        elapse(_SEEN_S)
        assert found(server) == number
    sink.close()


def test_whoever_goes_on_searching_sees_a_change_within_seconds(server: Server) -> None:
    sink = server.sink()
    sink.prepare(ORDERS)
    found(server)
    sink.apply(ORDERS, [order(1, at(1))])
    until(lambda: found(server))
    sink.close()


@pytest.mark.parametrize("interval", [None, "250ms", "-1"])
def test_only_who_asks_for_an_interval_fixes_it(server: Server, interval: str | None) -> None:
    sink = server.sink(refresh_interval=interval)
    sink.prepare(ORDERS)
    (settings,) = server.ask("GET", path(server.alias(), "_settings")).values()
    assert settings["settings"]["index"].get("refresh_interval") == interval
    sink.close()
