"""Elasticsearch is restored amid a batch: progress is not written over what it went back to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.model.errors import SinkUnavailable, SinkWentBack
from sinks.base import Place
from sinks.contract.story import ORDERS, at, order
from sinks.elasticsearch import ElasticsearchSink
from tests.support.search import Server

pytestmark = pytest.mark.stack

PLACE: Place = ("orders", 0)


@pytest.fixture
def sink(server: Server) -> Iterator[ElasticsearchSink]:
    sink = server.sink()
    sink.prepare(ORDERS)
    yield sink
    sink.close()


def batch(sink: ElasticsearchSink, number: int) -> None:
    sink.progress([PLACE])
    sink.apply(ORDERS, [order(number, at(number))])
    sink.settle({PLACE: number})


def progress_index(server: Server) -> str:
    found = server.ask("GET", f"/{server.prefix}*?expand_wildcards=all")
    (index,) = [name for name in found if "headrace_progress" in name]
    return str(index)


def test_progress_is_written_over_what_was_looked_at(server: Server, sink: ElasticsearchSink) -> None:
    for number in (1, 2, 3):
        batch(sink, number)
    sink.settle({PLACE: 4})  # of the same batch: nobody looks in between
    assert sink.progress([PLACE]) == {PLACE: 4}
    sink.forget(["orders"])
    sink.settle({PLACE: 5})
    assert sink.progress([PLACE]) == {PLACE: 5}


@pytest.mark.parametrize("restored", ["the document", "the index", "nothing"])
def test_progress_is_not_written_over_an_index_that_was_put_back(
    server: Server, sink: ElasticsearchSink, restored: str
) -> None:
    batch(sink, 1)
    index = progress_index(server)
    made: Any = server.ask("GET", f"/{index}")[index]
    server.ask("POST", f"/{index}/_refresh")
    (kept,) = server.ask("GET", f"/{index}/_search?q=partition:0")["hits"]["hits"]
    batch(sink, 2)
    assert sink.progress([PLACE]) == {PLACE: 2}
    sink.apply(ORDERS, [order(3, at(3))])
    if restored != "the document":
        server.ask("DELETE", f"/{index}")
    if restored == "the index":
        server.ask("PUT", f"/{index}", {"mappings": made["mappings"], "aliases": made["aliases"]})
    if restored != "nothing":
        server.ask("PUT", f"/{index}/_doc/{kept['_id']}", kept["_source"])
    for _ in range(2):  # nor when it is asked again before the next look
        with pytest.raises(SinkWentBack) as caught:
            sink.settle({PLACE: 3})
        assert caught.value.code == "ES_PUT_BACK"
    lacks = 0 if restored == "nothing" else 1
    assert sink.progress([PLACE]).get(PLACE, 0) == lacks
    batch(sink, 3)
    assert sink.progress([PLACE]) == {PLACE: 3}


def test_progress_is_as_conditional_when_it_is_written_again(
    server: Server, sink: ElasticsearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try met a cluster that was away, and is put back until the second."""
    batch(sink, 1)
    index = progress_index(server)
    server.ask("POST", f"/{index}/_refresh")
    (kept,) = server.ask("GET", f"/{index}/_search?q=partition:0")["hits"]["hits"]
    assert sink.progress([PLACE]) == {PLACE: 1}

    def away(*_: object) -> None:
        raise SinkUnavailable("it is away", code="ES_UNREACHABLE")

    with monkeypatch.context() as patch:
        patch.setattr(sink._progress._bulk, "send", away)
        with pytest.raises(SinkUnavailable):
            sink.settle({PLACE: 2})
    server.ask("PUT", f"/{index}/_doc/{kept['_id']}", kept["_source"])
    with pytest.raises(SinkWentBack):
        sink.settle({PLACE: 2})
    assert sink.progress([PLACE]) == {PLACE: 1}


def test_a_place_that_had_no_progress_yet_holds_nothing_up(server: Server, sink: ElasticsearchSink) -> None:
    """Nobody looks at one of which nothing was settled, so that it would be refused for ever."""
    batch(sink, 1)
    index, fresh = progress_index(server), ("orders", 1)
    server.ask("POST", f"/{index}/_refresh")
    (kept,) = server.ask("GET", f"/{index}/_search?q=partition:0")["hits"]["hits"]
    assert sink.progress([PLACE]) == {PLACE: 1}
    server.ask("PUT", f"/{index}/_doc/{kept['_id']}", kept["_source"])
    with pytest.raises(SinkWentBack):
        sink.settle({PLACE: 2, fresh: 7})
    sink.progress([PLACE])
    sink.settle({PLACE: 2, fresh: 7})
    assert sink.progress([PLACE, fresh]) == {PLACE: 2, fresh: 7}
