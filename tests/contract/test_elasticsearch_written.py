"""Documents that somebody else writes to: no change of ours is lost to them, and ours keep their order.

Each write that gives no version adds one to a document's, which so gets ahead of changes that are to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from headrace.model.change import Change
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.outcome import APPLIED, ROW_MISSING, STALE
from headrace.model.position import MAX_EPOCH, Position
from headrace.model.values import canonical_row
from sinks.contract.story import ORDERS, at, delete, expected, order, state
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client, path
from tests.support.search import Server

pytestmark = pytest.mark.stack

TIMES = 20
"""Writes of others, and so how far a document's version is ahead of ours."""


@pytest.fixture
def sink(server: Server) -> Iterator[ElasticsearchSink]:
    sink = server.sink()
    sink.prepare(ORDERS)
    yield sink
    sink.close()


def update(server: Server, number: int = 1) -> None:
    """Change a column; what is ours of the document stays."""
    for n in range(TIMES):
        change = {"doc": {"item": f"theirs {n}"}}
        server.ask("POST", path(server.alias(), "_update", str(number)), change)


def put(server: Server, number: int = 1) -> None:
    """Put another document in its place, without what is ours."""
    for n in range(TIMES):
        server.ask("PUT", path(server.alias(), "_doc", str(number)), {"id": number, "item": f"theirs {n}"})


def remove(server: Server, number: int = 1) -> None:
    """Put others in its place, and remove the last of them."""
    put(server, number)
    server.ask("DELETE", path(server.alias(), "_doc", str(number)))


THEIRS = pytest.mark.parametrize("theirs", [update, put, remove])
LIVES = pytest.mark.parametrize("epoch", [0, MAX_EPOCH])


@THEIRS
@LIVES
def test_a_change_is_applied_over_what_somebody_else_has_written(
    server: Server, sink: ElasticsearchSink, theirs: Callable[[Server], None], epoch: int
) -> None:
    assert sink.apply(ORDERS, [order(1, at(5, epoch)), order(2, at(6, epoch))]) == [APPLIED] * 2
    theirs(server)
    others = [order(2, at(4, epoch)), order(3, at(8, epoch))]
    assert sink.apply(ORDERS, [order(1, at(7, epoch), item="after"), *others]) == [APPLIED, STALE, APPLIED]
    rows = [order(1, at(7, epoch), item="after"), order(2, at(6, epoch)), others[1]]
    assert state(sink, ORDERS) == expected(ORDERS, rows)
    assert sink.apply(ORDERS, [order(1, at(6, epoch), item="before")]) == [STALE]
    for offset in (7, 8, 9, 100):
        rows[0] = order(1, at(offset, epoch), item=f"at {offset}")
        assert sink.apply(ORDERS, [rows[0]]) == [APPLIED]
        assert state(sink, ORDERS) == expected(ORDERS, rows)


@THEIRS
def test_a_delete_removes_what_somebody_else_has_written(
    server: Server, sink: ElasticsearchSink, theirs: Callable[[Server], None]
) -> None:
    sink.apply(ORDERS, [order(1, at(5)), order(2, at(6))])
    theirs(server)
    sink.apply(ORDERS, [delete(ORDERS, 1, at(7))])
    assert state(sink, ORDERS) == expected(ORDERS, [order(2, at(6))])
    with closing(server.sink()) as again:
        for one in (sink, again):
            assert one.apply(ORDERS, [order(1, at(5))]) == [STALE], "deleted stays deleted"
    assert sink.apply(ORDERS, [order(1, at(8))]) == [APPLIED], "and it may come back"
    assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(8)), order(2, at(6))])


def test_what_came_too_late_stays_so_though_somebody_else_has_written(
    server: Server, sink: ElasticsearchSink
) -> None:
    sink.apply(ORDERS, [order(1, at(5))])
    update(server)
    assert sink.apply(ORDERS, [order(1, at(4))]) == [STALE]
    assert sink.apply(ORDERS, [delete(ORDERS, 1, at(4))]) == [STALE]
    assert sink.apply(ORDERS, [order(1, at(4), absent=["note"])]) == [STALE]
    assert sink.apply(ORDERS, [order(1, at(5))]) == [APPLIED], "the same change again"
    assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(5))])


def test_a_change_that_leaves_columns_as_they_are_is_merged_with_a_row_of_ours_only(
    server: Server, sink: ElasticsearchSink
) -> None:
    sink.apply(ORDERS, [order(number, at(number), note="kept") for number in (1, 2)])
    update(server, 1)
    put(server, 2)
    put(server, 3)
    partial = [order(number, at(2 + number), item="after", absent=["note"]) for number in (1, 2, 3)]
    assert sink.apply(ORDERS, partial) == [APPLIED, ROW_MISSING, ROW_MISSING]
    found = sink.rows(ORDERS, [change.key for change in partial])
    whole = order(1, at(3), item="after", note="kept")
    assert {key: (canonical_row(ORDERS, row.row), row.version) for key, row in found.items()} == {
        whole.key: (canonical_row(ORDERS, whole.row), whole.position.version)
    }


@pytest.mark.parametrize(
    ("theirs", "before"),
    [(update, [order(1, at(5))]), (put, [order(1, at(5))]), (put, [])],
    ids=["changed", "replaced", "inserted"],
)
def test_a_truncate_removes_what_somebody_else_has_written(
    server: Server, sink: ElasticsearchSink, theirs: Callable[[Server], None], before: list[Change]
) -> None:
    sink.apply(ORDERS, [*before, order(2, at(6)), order(3, at(20))])
    theirs(server)
    assert sink.count(ORDERS, at(7)) == 2
    assert sink.truncate(ORDERS, at(7)) == 2
    assert sink.count(ORDERS, at(7)) == 0
    assert state(sink, ORDERS) == expected(ORDERS, [order(3, at(20))])
    assert sink.apply(ORDERS, [order(1, at(6))]) == [STALE]
    assert sink.apply(ORDERS, [order(1, at(8))]) == [APPLIED]


def test_a_truncate_leaves_a_newer_row_though_somebody_else_has_written(
    server: Server, sink: ElasticsearchSink
) -> None:
    sink.apply(ORDERS, [order(1, at(7)), order(2, at(8))])
    update(server, 1)
    update(server, 2)
    assert sink.truncate(ORDERS, at(7)) == 0
    assert sink.count(ORDERS) == 2


def test_documents_of_others_go_once_with_the_first_partition(
    server: Server, sink: ElasticsearchSink
) -> None:
    ours = [order(number, at(number, epoch=1, partition=number)) for number in range(3)]
    sink.apply(ORDERS, ours)
    put(server, 77)
    marks = [Position(1, 0, partition) for partition in range(3)]
    assert [sink.count(ORDERS, mark) for mark in marks] == [1, 0, 0]
    assert [sink.truncate(ORDERS, mark) for mark in marks] == [1, 0, 0]
    assert state(sink, ORDERS) == expected(ORDERS, ours)
    assert sink.apply(ORDERS, [order(77, at(5, epoch=1, partition=2))]) == [APPLIED]


def test_what_is_removed_of_others_is_not_taken_for_rows_that_somebody_has_removed(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, 9)])
    monkeypatch.setattr("sinks.elasticsearch.identity._QUIET_S", 0.0)
    sink.identities([ORDERS])
    first = sink.identities([ORDERS])
    for number in (1, 2):
        update(server, number)
    put(server, 77)
    sink.apply(ORDERS, [delete(ORDERS, 1, at(10))])
    sink.truncate(ORDERS, at(20))
    assert sink.count(ORDERS) == 0
    assert sink.identities([ORDERS]) == first


def test_a_replay_asks_once_for_what_stands_there(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [order(number, at(10_000 + number)) for number in range(5_000)]
    sink.apply(ORDERS, rows)
    asked: list[str] = []
    request = Client.request

    def counting(client: Client, method: str, target: str, *rest: Any, **named: Any) -> Any:
        asked.append(target.partition("?")[0].rpartition("/")[2])
        return request(client, method, target, *rest, **named)

    monkeypatch.setattr(Client, "request", counting)
    assert sink.apply(ORDERS, [order(number, at(number)) for number in range(5_000)]) == [STALE] * 5_000
    assert asked.count("_bulk") == asked.count("_mget") == 3
    asked.clear()
    assert sink.apply(ORDERS, rows) == [APPLIED] * 5_000
    assert asked.count("_mget") == 0


def test_an_alias_that_somebody_leads_to_two_indexes_is_told_of_its_table(
    server: Server, sink: ElasticsearchSink
) -> None:
    """No document can be asked for then, and no patience ends that. What is told whole goes on to ours."""
    rows = [order(1, at(5)), order(2, at(6))]
    assert sink.apply(ORDERS, rows) == [APPLIED] * 2
    other = f"{server.prefix}other"
    server.ask("PUT", path(other))
    lead = {"index": other, "alias": server.alias()}
    server.ask("POST", "/_aliases", {"actions": [{"add": lead}]})
    with pytest.raises(SinkError) as caught:
        sink.rows(ORDERS, [rows[0].key])
    assert not isinstance(caught.value, SinkUnavailable)
    assert (caught.value.code, caught.value.table) == ("ES_REFUSED", ORDERS.table)
    rows[0] = order(1, at(7), item="after")
    assert sink.apply(ORDERS, rows[:1]) == [APPLIED]
    server.ask("POST", "/_aliases", {"actions": [{"remove": lead}]})
    assert state(sink, ORDERS) == expected(ORDERS, rows)
