"""Documents that somebody else removes from Elasticsearch: the index is no longer the one that was filled."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.model.outcome import APPLIED, STALE
from headrace.model.schema import LogicalType
from sinks.contract import table
from sinks.contract.story import ORDERS, at, delete, order
from sinks.elasticsearch import ElasticsearchSink
from tests.contract.test_broken_wire import through
from tests.support.search import ROWS, Server, filled, identity
from tests.support.wire import wire

pytestmark = pytest.mark.stack

ITEMS = table("items", {"id": LogicalType.INT64}, ["id"])


@pytest.fixture
def sink(server: Server) -> Iterator[ElasticsearchSink]:
    yield from filled(server)


def remove_one(server: Server) -> None:
    server.client.request("DELETE", f"/{server.alias()}/_doc/3")


def remove_all(server: Server) -> None:
    """As ``_delete_by_query`` does, which the local server's distribution leaves out."""
    for row in ROWS:
        server.client.request("DELETE", f"/{server.alias()}/_doc/{row.key.id}", see=(404,))


@pytest.mark.parametrize("remove", [remove_one, remove_all])
def test_an_index_that_lost_documents_is_another_and_takes_what_it_had(
    server: Server, sink: ElasticsearchSink, remove: Any
) -> None:
    first = identity(sink)
    assert identity(sink) == first
    remove(server)
    second = identity(sink)
    assert second != first
    # Elasticsearch itself would refuse the version of a document that was just deleted.
    assert sink.apply(ORDERS, ROWS) == [APPLIED] * len(ROWS)
    assert sink.count(ORDERS) == len(ROWS)
    assert identity(sink) == second


def test_what_is_removed_while_nobody_looks_is_found_by_the_next_who_does(
    server: Server, sink: ElasticsearchSink
) -> None:
    first = identity(sink)
    remove_one(server)
    again = server.sink()
    try:
        second = identity(again)
        assert second != first
    finally:
        again.close()
    third = server.sink()
    try:
        assert identity(third) == second
    finally:
        third.close()


def in_quiet(sink: ElasticsearchSink, patch: pytest.MonkeyPatch) -> str:
    """Return the identity, as it is known when nothing has been deleted for a minute."""
    with patch.context() as quiet:
        quiet.setattr("sinks.elasticsearch.identity._QUIET_S", 0.0)
        identity(sink)
        return identity(sink)


def test_what_the_sink_deletes_itself_leaves_the_index_what_it_is(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside looks all the while: a tombstone and its row are counted by two shards."""
    first = in_quiet(sink, monkeypatch)
    sink.apply(ORDERS, [order(number, at(number)) for number in range(100, 500)])
    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(
            lambda: [
                sink.apply(ORDERS, [delete(ORDERS, number, at(2_000 + number)) for number in (n, n + 1)])
                for n in range(100, 500, 2)
            ]
        )
        told = {identity(sink)}
        while not deleting.done():
            told.add(identity(sink))
        deleting.result()
    sink.truncate(ORDERS, at(5_000))
    told.add(identity(sink))
    assert told == {first}
    assert sink.count(ORDERS) == 0


def test_one_that_is_removed_soon_after_the_first_look_is_found(
    server: Server, sink: ElasticsearchSink
) -> None:
    first = identity(sink)
    sink.apply(ORDERS, [delete(ORDERS, number, at(20)) for number in (7, 8)])
    assert identity(sink) == first
    remove_one(server)
    assert identity(sink) != first


@pytest.mark.deep
def test_one_that_is_removed_when_deletes_may_be_under_way_is_found_once_they_cannot_be(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.apply(ORDERS, [delete(ORDERS, number, at(20)) for number in (6, 7, 8)])
    first = identity(sink)
    remove_one(server)
    assert identity(sink) == first  # it may be one of the three
    monkeypatch.setattr("sinks.elasticsearch.identity._QUIET_S", 0.0)
    assert identity(sink) != first


@pytest.mark.deep
def test_many_tombstones_are_read_at_several_looks_and_the_one_removal_beside_them_is_found(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.elasticsearch.identity._READ", 1)
    first = identity(sink)
    for number in range(4, 9):
        sink.apply(ORDERS, [delete(ORDERS, number, at(20))])
    sink.apply(ORDERS, [delete(ORDERS, number, at(21)) for number in (1, 2)])
    remove_one(server)
    looks = 0
    while identity(sink) == first:
        looks += 1
        assert looks < 20, "it is never found"


def test_one_that_is_removed_beside_deletes_of_the_sink_is_found(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = in_quiet(sink, monkeypatch)
    for numbers in ((8, 7), (6, 5)):
        sink.apply(ORDERS, [delete(ORDERS, number, at(20)) for number in numbers])
        assert identity(sink) == first
    remove_one(server)
    assert identity(sink) != first


def test_an_index_that_takes_nothing_now_is_lost_and_keeps_no_other_from_being_looked_at(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.elasticsearch.identity._NOTED_S", 0.0)
    sink.prepare(ITEMS)
    first = sink.identities([ORDERS, ITEMS]) or {}
    assert first.keys() == {ORDERS.table, ITEMS.table}
    remove_one(server)
    block = f"/{server.alias()}/_settings"
    server.ask("PUT", block, {"index.blocks.read_only": True})
    try:
        for _ in range(2):
            assert sink.identities([ORDERS, ITEMS]) == {ITEMS.table: first[ITEMS.table]}
        again = server.sink()
        assert again.identities([ORDERS, ITEMS]) == {ITEMS.table: first[ITEMS.table]}
        again.close()
    finally:
        server.ask("PUT", block, {"index.blocks.read_only": None})
    second = sink.identities([ORDERS, ITEMS]) or {}
    assert second[ITEMS.table] == first[ITEMS.table]
    assert second[ORDERS.table] != first[ORDERS.table]


@pytest.mark.deep
def test_what_is_removed_while_the_index_is_filled_again_is_found_in_its_time(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity(sink)
    remove_one(server)
    second = identity(sink)
    remove_all(server)
    assert sink.identities([ORDERS]) == {}  # it is not green, and not begun anew either
    monkeypatch.setattr("sinks.elasticsearch.identity._MADE_S", 0.0)
    assert identity(sink) != second


@pytest.mark.deep
def test_what_is_removed_after_deletes_of_the_sink_is_found(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.elasticsearch.identity._QUIET_S", 0.0)
    first = identity(sink)
    sink.apply(ORDERS, [delete(ORDERS, 8, at(20))])
    assert identity(sink) == first
    remove_one(server)
    assert identity(sink) != first


@pytest.mark.deep
def test_one_that_is_removed_beside_a_delete_of_the_sink_that_comes_too_late_is_found(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.elasticsearch.identity._QUIET_S", 0.0)
    first = identity(sink)
    late = [delete(ORDERS, number, at(number - 1)) for number in (7, 8)]
    assert sink.apply(ORDERS, late) == [STALE, STALE]
    assert identity(sink) == first
    assert sink.apply(ORDERS, [*late, delete(ORDERS, 6, at(20))]) == [STALE, STALE, APPLIED]
    remove_one(server)
    assert identity(sink) != first
    assert sink.count(ORDERS) == len(ROWS) - 2


@pytest.mark.deep
def test_one_beside_deletes_that_come_too_late_is_found_between_other_deletes(
    server: Server, sink: ElasticsearchSink
) -> None:
    """There are more tombstones than deletes all the while, and not a minute without."""
    first = identity(sink)
    late = [delete(ORDERS, number, at(number - 1)) for number in (7, 8)]
    assert sink.apply(ORDERS, late) == [STALE, STALE]
    remove_one(server)
    assert identity(sink) != first


@pytest.mark.parametrize("what", ["truncate", "take back"])
def test_what_the_sink_sends_twice_as_an_answer_was_lost_is_counted_once(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    port = urlsplit(server.url).port
    assert port is not None
    first = in_quiet(sink, monkeypatch)
    with wire("127.0.0.1", port) as way, closing(server.sink(through(server.url, way.port))) as other:
        if what == "truncate":
            way.break_at(b'"version_type":"external"}', None)
            other.truncate(ORDERS, at(20))
            assert sink.count(ORDERS) == 0
        else:
            way.break_at(b'"uncounted"', None)
            late = [delete(ORDERS, number, at(number - 1)) for number in (7, 8)]
            assert other.apply(ORDERS, late) == [STALE, STALE]
        assert way.broken
    assert in_quiet(sink, monkeypatch) == first


def test_a_check_notes_nothing(server: Server, sink: ElasticsearchSink) -> None:
    def noted() -> Any:
        (index,) = server.ask("GET", f"/{server.alias()}/_mapping").values()
        return index["mappings"]["_meta"]["headrace"]

    before = noted()
    sink.check([ORDERS])
    assert noted() == before
    identity(sink)
    assert noted().items() >= before.items()
    assert "counted" in noted()
