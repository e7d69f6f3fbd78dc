"""What tells an index from another: its shards and its tombstones, beside its settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from headrace.model.outcome import APPLIED
from sinks.contract.story import ORDERS, at, delete
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import path
from sinks.elasticsearch.names import tombstones_of
from tests.contract.test_broken_wire import through
from tests.support.search import ROWS, Server, filled, identity
from tests.support.waiting import until
from tests.support.wire import wire

pytestmark = pytest.mark.stack


@pytest.fixture
def sink(server: Server) -> Iterator[ElasticsearchSink]:
    yield from filled(server)


def index(server: Server, alias: str) -> str:
    (found,) = server.ask("GET", path("_alias", alias))
    return str(found)


@pytest.mark.parametrize(
    ("told", "other"),
    [
        (b'"seq_no":', b'"no_seq":'),
        (b'"indexing":', b'"gnixedni":'),
        (b'"STARTED"', b'"OPENING"'),
    ],
)
def test_a_shard_that_is_being_opened_is_not_counted(
    server: Server, sink: ElasticsearchSink, told: bytes, other: bytes
) -> None:
    """A server tells so for a moment only: its answers are altered."""
    port = urlsplit(server.url).port
    assert port is not None
    with wire("127.0.0.1", port) as way, closing(server.sink(through(server.url, way.port))) as looking:
        first = identity(looking)
        way.alter(told, other)
        server.client.request("DELETE", f"/{server.alias()}/_doc/3")
        assert identity(looking) == first
        way.alter(told, told)
        assert identity(looking) != first


@pytest.mark.parametrize("looked", [True, False])
def test_an_index_whose_tombstones_were_deleted_is_another(
    server: Server, sink: ElasticsearchSink, looked: bool
) -> None:
    """They are there again as soon as it is made ready, by an engine that is started, say."""
    first = identity(sink)
    server.ask("DELETE", path(index(server, tombstones_of(server.alias()))))
    if looked:
        assert sink.identities([ORDERS]) == {}
    with closing(server.sink(shards=2)) as started:
        later = sink if looked else started
        later.prepare(ORDERS)
        second = identity(later)
        assert second != first
        assert identity(later) == second
    with closing(server.sink()) as again:
        assert identity(again) == second


def test_tombstones_that_lost_their_alias_for_a_while_are_the_same(
    server: Server, sink: ElasticsearchSink
) -> None:
    first = identity(sink)
    alias = tombstones_of(server.alias())
    remove = {"remove": {"index": index(server, alias), "alias": alias}}
    server.ask("POST", "/_aliases", {"actions": [remove]})
    assert sink.identities([ORDERS]) == {}
    sink.prepare(ORDERS)
    assert identity(sink) == first


@pytest.mark.parametrize("of", ["rows", "tombstones"])
@pytest.mark.parametrize("how", ["allocate_empty_primary", "allocate_stale_primary"])
def test_an_index_of_which_a_shard_is_opened_anew_is_another(
    server: Server, sink: ElasticsearchSink, of: str, how: str
) -> None:
    sink.apply(ORDERS, [delete(ORDERS, 8, at(20))])
    first = identity(sink)
    name = index(server, server.alias() if of == "rows" else tombstones_of(server.alias()))
    (node,) = [about["name"] for about in server.ask("GET", "/_nodes")["nodes"].values()]
    shard = {"index": name, "shard": 0, "node": node}

    def states() -> list[str]:
        return [shard["state"] for shard in server.ask("GET", path("_cat", "shards", name) + "?format=json")]

    commands = [{"cancel": {**shard, "allow_primary": True}}, {how: {**shard, "accept_data_loss": True}}]
    server.ask("POST", "/_cluster/reroute", {"commands": commands})
    until(lambda: set(states()) == {"STARTED"}, why=states)
    second = identity(sink)
    assert second != first
    assert sink.apply(ORDERS, ROWS[:7]) == [APPLIED] * 7
    assert sink.count(ORDERS) == 7
    assert identity(sink) == second


def test_a_shadow_that_is_switched_to_is_the_one_that_was_filled(
    server: Server, sink: ElasticsearchSink
) -> None:
    identity(sink)
    with closing(server.sink(shadow="r1")) as shadow:
        shadow.prepare(ORDERS)
        shadow.apply(ORDERS, ROWS)
        shadow.settle({("shop.public.orders", 0): 20})
        first = identity(shadow)
        shadow.switch(ORDERS)
    with closing(server.sink()) as serving:
        assert identity(serving) == first
    assert identity(sink) == first
