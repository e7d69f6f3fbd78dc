"""What the Elasticsearch sink does while shards do not answer: it says so, and takes nothing for missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.model.errors import SinkUnavailable
from headrace.model.outcome import ROW_MISSING
from sinks.contract.story import ORDERS, at, delete, order, upsert
from sinks.elasticsearch.client import path
from sinks.elasticsearch.names import tombstones_of
from tests.support.search import Server
from tests.support.waiting import until

pytestmark = pytest.mark.stack


def lose_a_shard(server: Server, index: str) -> None:
    """Replace an index of two shards by an empty one whose second shard has no home until it is found one."""
    old = server.ask("GET", path(index))[index]
    server.ask("DELETE", path(index))
    settings = {"number_of_shards": 2, "number_of_replicas": 0, "routing.allocation.total_shards_per_node": 1}
    body = {"settings": settings, "mappings": old["mappings"], "aliases": old["aliases"]}
    server.ask("PUT", path(index) + "?wait_for_active_shards=0", body)

    def states() -> list[str]:
        return sorted(shard["state"] for shard in server.ask("GET", f"/_cat/shards/{index}?format=json"))

    until(lambda: states() == ["STARTED", "UNASSIGNED"], why=states)


def find_the_shard(server: Server, index: str) -> None:
    server.ask("PUT", path(index, "_settings"), {"index.routing.allocation.total_shards_per_node": None})
    server.ask("GET", path("_cluster", "health", index) + "?wait_for_status=green&timeout=30s")


def test_a_row_that_cannot_be_read_just_now_is_not_a_missing_row(server: Server) -> None:
    sink, hasty = server.sink(shards=2), server.sink(shards=2, timeout=1)
    sink.prepare(ORDERS)
    sink.settle({("shop.public.orders", 0): 20})
    indexes = [server.alias() + "-g1", f"{server.prefix}headrace_progress-1"]
    for index in indexes:
        lose_a_shard(server, index)
    partial = [upsert(ORDERS, {"id": n, "item": "cup"}, at(n), ["note", "price"]) for n in range(20)]
    # A refresh of a lost shard waits for it for a minute.
    reads: list[Callable[[], object]] = [
        lambda: hasty.apply(ORDERS, partial),
        lambda: hasty.rows(ORDERS, [change.key for change in partial]),
        lambda: list(hasty.scan(ORDERS)),
        lambda: hasty.truncate(ORDERS, at(50)),
        hasty.progress,
    ]
    for read in reads:
        with pytest.raises(SinkUnavailable):
            read()
    for index in indexes:
        find_the_shard(server, index)
    assert sink.apply(ORDERS, partial) == [ROW_MISSING] * 20
    assert sink.progress() == {}
    sink.close()
    hasty.close()


def test_a_tombstone_that_cannot_be_read_just_now_is_not_a_missing_tombstone(server: Server) -> None:
    sink, newcomer = (server.sink(shards=2, timeout=8) for _ in range(2))
    sink.prepare(ORDERS)
    past = [order(n, at(n)) for n in range(20)]
    sink.apply(ORDERS, [delete(ORDERS, n, at(100 + n)) for n in range(20)])
    lose_a_shard(server, tombstones_of(server.alias()) + "1")
    for replaying in (sink, newcomer):
        with pytest.raises(SinkUnavailable):
            replaying.apply(ORDERS, past)
    find_the_shard(server, tombstones_of(server.alias()) + "1")
    sink.close()
    newcomer.close()
