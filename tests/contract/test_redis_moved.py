"""A primary that has moved to another server behind its address is followed; its connections are alive."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from headrace.model.errors import SinkError
from headrace.model.outcome import APPLIED
from sinks.contract.story import ORDERS, at, expected, order, state
from sinks.redis import RedisSink
from tests.support.redis_server import other_redis
from tests.support.waiting import until
from tests.support.wire import wire

pytestmark = pytest.mark.stack

PLACE = ("shop.public.orders", 0)


def test_a_primary_that_has_become_a_replica_is_left_for_the_one_that_its_address_leads_to(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with other_redis(first) as was, other_redis(second) as becomes:
        here, there = urlsplit(was), urlsplit(becomes)
        assert here.hostname
        assert here.port
        assert there.hostname
        assert there.port
        with (
            wire(here.hostname, here.port) as address,
            closing(client(was)) as old,
            closing(client(becomes)) as new,
        ):
            config = RedisSink.Config(url=f"redis://127.0.0.1:{address.port}")
            with closing(RedisSink("cache", config)) as sink:
                sink.prepare(ORDERS)
                assert sink.apply(ORDERS, [order(1, at(1))]) == [APPLIED]
                sink.settle({PLACE: 1})
                new.execute_command("REPLICAOF", here.hostname, here.port)
                until(lambda: new.info("replication")["master_link_status"] == "up")
                until(lambda: new.dbsize() == old.dbsize())
                new.execute_command("REPLICAOF", "NO", "ONE")
                old.execute_command("REPLICAOF", there.hostname, there.port)
                address.lead_to(there.hostname, there.port)
                for act in (
                    lambda: sink.progress([PLACE]),
                    lambda: sink.apply(ORDERS, [order(2, at(2))]) == [APPLIED],
                    lambda: sink.settle({PLACE: 2}),
                ):
                    until(lambda act=act: done(act))  # type: ignore[misc]
                assert dict(sink.progress([PLACE])) == {PLACE: 2}
                assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(1)), order(2, at(2))])


def client(url: str) -> Any:
    return Redis.from_url(url)


def done(act: Any) -> bool:
    """Return whether something can be done, as the engine tries it again."""
    try:
        act()
    except SinkError:
        return False
    return True
