"""What readers of Elasticsearch see while a shadow is filled and takes its place."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from headrace.model.errors import SinkError
from headrace.model.schema import LogicalType
from sinks.contract import table
from sinks.contract.story import ORDERS, at, expected, order, state, upsert
from sinks.elasticsearch import ElasticsearchSink
from tests.support.search import Server

pytestmark = pytest.mark.stack

PLACE = ("shop.public.orders", 0)
OLD = [order(number, at(number), item="old") for number in range(30)]
NEW = [order(number, at(number + 100), item="new") for number in range(40)]


def test_searches_find_the_old_rows_then_the_new_ones(server: Server) -> None:
    seen: list[tuple[int, frozenset[str]]] = []
    failed: list[BaseException] = []
    stop = threading.Event()
    alias = server.alias()

    def read() -> None:
        try:
            while not stop.is_set():
                # As an application would: by the alias, or by a pattern of its own.
                for target in (f"/{alias}", f"/{server.prefix}*"):
                    found = server.ask("GET", f"{target}/_search?size=1000")["hits"]["hits"]
                    seen.append((len(found), frozenset(hit["_source"]["item"] for hit in found)))
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    with closing(server.sink()) as sink, closing(server.sink(shadow="r1")) as shadow:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, OLD)
        sink.settle({PLACE: 40})
        assert state(sink, ORDERS) == expected(ORDERS, OLD)
        reader = threading.Thread(target=read)
        reader.start()
        try:
            shadow.prepare(ORDERS)
            shadow.apply(ORDERS, NEW)
            shadow.settle({PLACE: 140})
            assert state(shadow, ORDERS) == expected(ORDERS, NEW)
            shadow.switch(ORDERS)
        finally:
            stop.wait(0.2)
            stop.set()
            reader.join()
        assert failed == []
        assert set(seen) == {(30, frozenset({"old"})), (40, frozenset({"new"}))}
        assert sorted(seen, key=lambda look: look[0]) == seen
        left = server.ask("GET", f"/{server.prefix}*/_alias?expand_wildcards=all")
        assert sorted(index for index in left if index.startswith(alias)) == [
            f"{alias}-deleted1",
            f"{alias}-g2",
        ]
        assert left[f"{alias}-g2"]["aliases"].keys() == {alias}


def test_an_integer_that_became_a_bigint_is_told_of_that_table_and_a_shadow_takes_it(server: Server) -> None:
    small = table("counts", {"id": LogicalType.INT32, "n": LogicalType.INT32}, ["id"])
    large = table("counts", {"id": LogicalType.INT64, "n": LogicalType.INT64}, ["id"])
    with closing(server.sink()) as sink, closing(server.sink(shadow="r1")) as shadow:
        for schema in (small, ORDERS):
            sink.prepare(schema)
        with pytest.raises(SinkError) as refused:
            sink.prepare(large)
        assert refused.value.as_dict() == {
            "code": "ES_MAPPING_CONFLICT",
            "message": refused.value.message,
            "hint": "headrace resnapshot SOURCE public.counts",
        }
        assert refused.value.table == large.table
        shadow.prepare(large)
        row = upsert(large, {"id": 1, "n": 2**40}, at(1))
        shadow.apply(large, [row])
        shadow.settle({PLACE: 1})
        shadow.switch(large)
        sink.prepare(large)
        assert state(sink, large) == expected(large, [row])


def test_an_index_that_somebody_deleted_is_told_of_that_table(server: Server) -> None:
    with closing(server.sink()) as sink:
        sink.prepare(ORDERS)
        server.ask("DELETE", f"/{server.alias()}-g1")
        with pytest.raises(SinkError) as refused:
            sink.apply(ORDERS, OLD)
        assert (refused.value.code, refused.value.table) == ("ES_INDEX_MISSING", ORDERS.table)
        assert refused.value.hint == "headrace resnapshot SOURCE public.orders"
        sink.prepare(ORDERS)
        sink.apply(ORDERS, OLD)
        assert state(sink, ORDERS) == expected(ORDERS, OLD)


def test_an_index_that_lost_its_alias_gets_it_back(server: Server) -> None:
    with closing(server.sink()) as sink, closing(server.sink(shadow="r1")) as shadow:
        sink.prepare(ORDERS)
        shadow.prepare(ORDERS)
        shadow.apply(ORDERS, NEW)
        shadow.settle({PLACE: 140})
        shadow.switch(ORDERS)
        alias = server.alias()
        server.ask("DELETE", f"/{alias}-g2/_alias/{alias}")
        again: ElasticsearchSink = server.sink()
        again.prepare(ORDERS)
        assert state(again, ORDERS) == expected(ORDERS, NEW)
        again.close()
