"""What the Elasticsearch sink does when the server, or somebody with access to it, is in a mood."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar
from urllib.request import Request, urlopen

import pytest

from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.finding import Severity
from headrace.model.outcome import APPLIED, ROW_MISSING, STALE, Rejected
from headrace.model.schema import Column, LogicalType, TableSchema
from sinks.contract.story import ORDERS, at, delete, expected, order, state, table, upsert
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import path
from sinks.elasticsearch.names import tombstones_of
from tests.support.search import Server
from tests.support.waiting import elapse

pytestmark = pytest.mark.stack


@pytest.fixture
def sink(server: Server) -> Iterator[ElasticsearchSink]:
    sink = server.sink()
    sink.prepare(ORDERS)
    yield sink
    sink.close()


# ------------------------------------------------------------ deletes


def let_the_server_forget(server: Server) -> None:
    """Let it forget the versions of deleted documents."""
    server.ask("PUT", path(server.alias(), "_settings"), {"index.gc_deletes": "0s"})
    server.ask("POST", path(server.alias(), "_flush") + "?force=true")
    elapse(1.5)


def test_a_delete_outlives_what_the_server_remembers_of_it(server: Server, sink: ElasticsearchSink) -> None:
    sink.apply(ORDERS, [order(1, at(1)), order(2, at(2)), order(3, at(3))])
    sink.apply(ORDERS, [delete(ORDERS, 1, at(10)), delete(ORDERS, 2, at(11))])
    let_the_server_forget(server)
    forgotten = (
        f'{{"index":{{"_id":"1","version":{at(1).version},"version_type":"external_gte"}}}}\n{{"id":1}}\n'
    )
    raw = server.client.request(
        "POST", path(server.alias(), "_bulk"), forgotten.encode(), mimetype="application/x-ndjson"
    )
    assert raw.json()["items"][0]["index"]["result"] == "created", "the server has forgotten the delete"
    server.ask("DELETE", path(server.alias(), "_doc", "1"))
    for replaying in (sink, server.sink()):
        assert replaying.apply(ORDERS, [order(1, at(1)), order(2, at(2)), order(3, at(3))]) == [
            STALE,
            STALE,
            APPLIED,
        ]
    assert state(sink, ORDERS) == expected(ORDERS, [order(3, at(3))])


def test_readers_of_a_pattern_see_rows_only(server: Server, sink: ElasticsearchSink) -> None:
    sink.apply(ORDERS, [order(1, at(1)), delete(ORDERS, 2, at(2))])
    sink.settle({("shop.public.orders", 0): 2})
    server.ask("POST", f"/{server.prefix}*/_refresh?expand_wildcards=all")
    hits = server.ask("GET", f"/{server.prefix}*/_search")["hits"]["hits"]
    assert [hit["_id"] for hit in hits] == ["1"]


def test_tombstones_are_forgotten_after_their_time(server: Server, sink: ElasticsearchSink) -> None:
    sink.apply(ORDERS, [delete(ORDERS, number, at(number)) for number in range(1, 4)])
    stones = tombstones_of(server.alias())
    long_ago = int(time.time() * 1000) - 8 * 86_400_000
    old = {"keys": ["9"], "versions": [9], "version": 9, "partition": 0, "at": long_ago}
    server.ask("PUT", path(stones, "_doc", "old") + "?refresh=true", old)
    assert not sink.maintain(5)
    server.ask("POST", path(stones, "_refresh"))
    left = server.ask("GET", path(stones, "_search"))["hits"]["hits"]
    assert [hit["_source"]["keys"] for hit in left] == [["1", "2", "3"]]


def test_a_row_deleted_twice_is_as_old_as_its_last_delete(server: Server, sink: ElasticsearchSink) -> None:
    """Tombstones lie many in a document, the documents in no order; each row has its own version there."""
    newest: dict[int, int] = {}
    for batch in (range(300), range(200, 500), range(100, 150)):
        version = 1_000 * (1 + len(newest))
        deletes = {number: version + 500 - number for number in batch}
        newest |= deletes
        sink.apply(ORDERS, [delete(ORDERS, number, at(v)) for number, v in deletes.items()])
    sink.apply(ORDERS, [delete(ORDERS, 700, at(10**6))])
    let_the_server_forget(server)
    asked = [*range(700)]
    for replaying in (sink, server.sink()):
        past = [order(number, at(newest.get(number, 1) - 1)) for number in asked if number in newest]
        assert set(replaying.apply(ORDERS, past)) == {STALE}
        missing = [order(n, at(newest.get(n, 1) - 1), absent=["note"]) for n in asked]
        expected_outcomes = [STALE if number in newest else ROW_MISSING for number in asked]
        assert replaying.apply(ORDERS, missing) == expected_outcomes
    later = [order(number, at(version + 1)) for number, version in newest.items()]
    assert set(sink.apply(ORDERS, later)) == {APPLIED}
    assert state(sink, ORDERS) == expected(ORDERS, later)


# ------------------------------------------------------------ searching


def test_values_can_be_searched_as_what_they_are(server: Server) -> None:
    kinds = {
        "id": LogicalType.INT64,
        "price": LogicalType.NUMERIC,
        "title": LogicalType.TEXT,
        "day": LogicalType.DATE,
        "at": LogicalType.TIMESTAMPTZ,
        "weight": LogicalType.FLOAT64,
        "attributes": LogicalType.JSON,
    }
    schema = table("products", kinds, ["id"])
    sink = server.sink()
    sink.prepare(schema)
    cup = {
        "id": 1,
        "price": "9.90",
        "title": "A red Cup",
        "day": 19_723,
        "at": "2024-01-01T10:00:00.123456Z",
        "weight": 0.5,
        "attributes": '{"colour": "red", "sizes": [1, 2]}',
    }
    odd = {
        "id": 2,
        "price": "NaN",
        "title": "",
        "day": 2_932_897,
        "at": "infinity",
        "weight": float("inf"),
        "attributes": "[1]",
    }
    assert sink.apply(schema, [upsert(schema, cup, at(1)), upsert(schema, odd, at(2))]) == [APPLIED, APPLIED]
    queries: list[dict[str, Any]] = [
        {"range": {"price.number": {"gte": 9.9, "lt": 10}}},
        {"term": {"price": "9.90"}},
        {"match": {"title": "cup"}},
        {"term": {"title.keyword": "A red Cup"}},
        {"range": {"day": {"gte": "2024-01-01", "lte": "2024-01-01"}}},
        {"range": {"at": {"gte": "2024-01-01T10:00:00Z", "lt": "2024-01-01T10:00:01Z"}}},
        {"range": {"weight": {"gt": 0}}},
        {"term": {"attributes.colour": "red"}},
        {"term": {"attributes": "red"}},
        {"range": {"_headrace.version": {"lte": at(1).version}}},
    ]
    server.ask("POST", path(server.alias(schema), "_refresh"))
    for query in queries:
        hits = server.ask("POST", path(server.alias(schema), "_search"), {"query": query})["hits"]["hits"]
        assert [hit["_id"] for hit in hits] == ["1"], query
    source = server.ask("GET", path(server.alias(schema), "_doc", "2"))["_source"]
    assert (source["price"], source["weight"], source["at"], source["day"]) == (
        "NaN",
        "Infinity",
        "infinity",
        "+10000-01-01",
    )
    assert source["attributes"] == {"%json": [1]}
    assert source["_headrace"]["offset"] == 2
    sink.close()


# ------------------------------------------------------------ shapes


def test_a_new_column_is_added_and_an_unknown_one_refused(server: Server, sink: ElasticsearchSink) -> None:
    wider = TableSchema(ORDERS.table, (*ORDERS.columns, Column("stock", LogicalType.INT32)), ORDERS.key)
    row = {"id": 1, "item": "cup", "price": "1", "note": None, "stock": 3}
    outcome = sink.apply(ORDERS, [upsert(wider, row, at(1)), order(2, at(2))])
    assert isinstance(outcome[0], Rejected)
    assert outcome[0].code == "ES_UNKNOWN_FIELD"
    assert outcome[1] == APPLIED
    sink.prepare(wider)
    assert sink.apply(wider, [upsert(wider, row, at(1))]) == [APPLIED]
    changed = TableSchema(ORDERS.table, (*ORDERS.columns[:-1], Column("note", LogicalType.BYTES)), ORDERS.key)
    with pytest.raises(SinkError) as caught:
        sink.prepare(changed)
    assert caught.value.code == "ES_MAPPING_CONFLICT"


def test_a_refusal_does_not_show_the_value(server: Server) -> None:
    schema = table("counts", {"id": LogicalType.INT64, "count": LogicalType.INT64}, ["id"])
    sink = server.sink()
    sink.prepare(schema)
    refused = sink.apply(schema, [upsert(schema, {"id": 1, "count": "s3cret-value"}, at(1))])[0]
    assert isinstance(refused, Rejected)
    assert (refused.code, "count" in refused.reason, "s3cret" in refused.reason) == (
        "ES_VALUE_REFUSED",
        True,
        False,
    )
    sink.close()


def test_a_wide_table_fits(server: Server) -> None:
    kinds = {"id": LogicalType.INT64, **{f"c{n}": LogicalType.NUMERIC for n in range(700)}}
    schema = table("wide", kinds, ["id"])
    sink = server.sink()
    sink.prepare(schema)
    change = upsert(schema, {"id": 1, **{f"c{n}": str(n) for n in range(700)}}, at(1))
    assert sink.apply(schema, [change]) == [APPLIED]
    assert state(sink, schema) == expected(schema, [change])
    sink.close()


def test_large_batches_are_cut(server: Server) -> None:
    sink = server.sink(chunk_docs=7, chunk_bytes=3_000)
    sink.prepare(ORDERS)
    changes = [order(n, at(n), note="x" * (n % 5 * 1000)) for n in range(100)]
    assert sink.apply(ORDERS, changes) == [APPLIED] * 100
    assert state(sink, ORDERS) == expected(ORDERS, changes)
    sink.close()


# ------------------------------------------------------------ operators and strangers


def test_a_write_block_is_waited_out(server: Server, sink: ElasticsearchSink) -> None:
    server.ask("PUT", path(server.alias(), "_settings"), {"index.blocks.write": True})
    with pytest.raises(SinkUnavailable) as caught:
        sink.apply(ORDERS, [order(1, at(1))])
    assert caught.value.code == "ES_BLOCKED"
    server.ask("PUT", path(server.alias(), "_settings"), {"index.blocks.write": None})
    assert sink.apply(ORDERS, [order(1, at(1))]) == [APPLIED]


def test_a_closed_index_is_waited_out(server: Server, sink: ElasticsearchSink) -> None:
    server.ask("POST", path(server.alias() + "-g1", "_close"))
    with pytest.raises(SinkUnavailable) as caught:
        sink.apply(ORDERS, [order(1, at(1))])
    assert caught.value.code == "ES_BLOCKED"
    server.ask("POST", path(server.alias() + "-g1", "_open") + "?wait_for_active_shards=1")
    assert sink.apply(ORDERS, [order(1, at(1))]) == [APPLIED]


def test_a_lost_index_is_named_and_never_made_up(server: Server, sink: ElasticsearchSink) -> None:
    server.ask("DELETE", path(server.alias() + "-g1"))
    with pytest.raises(SinkError) as caught:
        sink.apply(ORDERS, [order(1, at(1))])
    assert caught.value.code == "ES_INDEX_MISSING"
    assert not isinstance(caught.value, SinkUnavailable)
    assert server.client.request("HEAD", path(server.alias()), see=(404,)).status == 404


def test_a_name_that_is_taken_is_said_so(server: Server) -> None:
    server.ask("PUT", path(server.alias()))
    sink = server.sink()
    with pytest.raises(SinkError) as caught:
        sink.prepare(ORDERS)
    assert caught.value.code == "ES_NAME_TAKEN"
    sink.close()


def test_two_processes_may_prepare_at_once(server: Server) -> None:
    sinks = [server.sink() for _ in range(4)]
    threads = [Thread(target=sink.prepare, args=(ORDERS,)) for sink in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sink.apply(ORDERS, [order(1, at(1))]) for sink in sinks] == [[APPLIED]] * 4


# ------------------------------------------------------------ the way there


class _Forwarder(BaseHTTPRequestHandler):
    """Passes requests on to the real server, unless a status is to be answered instead."""

    upstream: ClassVar[str]
    refuse: ClassVar[dict[str, int]]
    largest: ClassVar[int]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""

    def _pass_on(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length) if length else None
        status = next((s for part, s in self.refuse.items() if part in self.path), 0)
        if status or length > self.largest:
            self._answer(status or 413, b'{"error":{"type":"proxy","reason":"not today"}}')
            return
        kept = ("authorization", "content-type", "accept")
        headers = {name: value for name, value in self.headers.items() if name.lower() in kept}
        request = Request(self.upstream + self.path, data=body, headers=headers, method=self.command)  # noqa: S310
        with urlopen(request) as answer:  # noqa: S310
            self._answer(answer.status, answer.read())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = _pass_on  # noqa: N815


@pytest.fixture
def proxy(server: Server) -> Iterator[tuple[str, dict[str, int], type[_Forwarder]]]:
    refuse: dict[str, int] = {}
    login, _, place = server.url.removeprefix("http://").rpartition("@")
    told = {"upstream": f"http://{place}", "refuse": refuse, "largest": 10**9}
    handler = type("Forwarder", (_Forwarder,), told)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://{login}@127.0.0.1:{listening.server_address[1]}", refuse, handler
        listening.shutdown()
        thread.join()


def test_too_large_a_request_is_halved(
    server: Server, sink: ElasticsearchSink, proxy: tuple[str, dict[str, int], type[_Forwarder]]
) -> None:
    url, _, handler = proxy
    handler.largest = 4_000
    through = server.sink(url)
    changes = [order(n, at(n), note="x" * (5_000 if n == 13 else 100)) for n in range(50)]
    outcomes = through.apply(ORDERS, changes)
    refused = outcomes.pop(13)
    assert isinstance(refused, Rejected)
    assert refused.code == "ES_TOO_LARGE"
    assert outcomes == [APPLIED] * 49
    assert state(sink, ORDERS) == expected(ORDERS, [change for n, change in enumerate(changes) if n != 13])
    through.close()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "ES_AUTH", SinkError),
        (403, "ES_FORBIDDEN", SinkError),
        (429, "ES_BUSY", SinkUnavailable),
        (502, "ES_BUSY", SinkUnavailable),
        (503, "ES_BUSY", SinkUnavailable),
    ],
)
def test_what_a_refused_request_means(
    server: Server,
    sink: ElasticsearchSink,
    proxy: tuple[str, dict[str, int], type[_Forwarder]],
    status: int,
    code: str,
    kind: type[SinkError],
) -> None:
    url, refuse, _ = proxy
    through = server.sink(url)
    refuse["_bulk"] = status
    with pytest.raises(SinkError) as caught:
        through.apply(ORDERS, [order(1, at(1))])
    assert (caught.value.code, type(caught.value)) == (code, kind)
    refuse.clear()
    assert through.apply(ORDERS, [order(1, at(1))]) == [APPLIED]
    through.close()


def test_nobody_there_is_a_finding_and_an_error_that_waiting_cures() -> None:
    sink = ElasticsearchSink("search", ElasticsearchSink.Config(url="http://127.0.0.1:9"))
    assert [(f.severity, f.code) for f in sink.check()] == [(Severity.ERROR, "ES_UNREACHABLE")]
    with pytest.raises(SinkUnavailable):
        sink.apply(ORDERS, [order(1, at(1))])
    sink.close()
