"""What others make of an alias of ours, or of its index: readers see other rows than were written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.outcome import APPLIED
from sinks.contract.story import ORDERS, at, order
from sinks.elasticsearch import ElasticsearchSink
from tests.support.search import Server

pytestmark = pytest.mark.stack

ROWS = [order(number, at(number)) for number in range(1, 9)]
CHANGES: dict[str, dict[str, Any]] = {
    "filter": {"filter": {"term": {"id": 1}}},
    "routing": {"routing": "one"},
    "not written to": {"is_write_index": False},
}


@pytest.fixture
def sink(server: Server) -> Iterator[ElasticsearchSink]:
    sink = server.sink()
    sink.prepare(ORDERS)
    assert sink.apply(ORDERS, ROWS) == [APPLIED] * len(ROWS)
    yield sink
    sink.close()


@pytest.mark.parametrize("how", [*CHANGES, "another index"])
def test_an_alias_that_others_have_changed_is_said_and_mended_as_it_is_told(
    server: Server, sink: ElasticsearchSink, how: str
) -> None:
    alias = server.alias()
    assert ORDERS.table in (sink.identities([ORDERS]) or {})
    (index,) = server.client.request("GET", f"/_alias/{alias}").json()
    action = {"index": index, "alias": alias, **CHANGES.get(how, {})}
    if how == "another index":
        server.client.request("PUT", f"/{index}-rolled", {"aliases": {alias: {"is_write_index": False}}})
    else:
        server.client.request("POST", "/_aliases", {"actions": [{"add": action}]})
    assert ORDERS.table not in (sink.identities([ORDERS]) or {})
    with pytest.raises(SinkError) as caught:
        sink.prepare(ORDERS)
    assert (caught.value.code, caught.value.table) == ("ES_ALIAS_CHANGED", ORDERS.table)
    _, _, body = caught.value.hint.partition("POST /_aliases ")
    server.client.request("POST", "/_aliases", json.loads(body))
    sink.prepare(ORDERS)
    assert ORDERS.table in (sink.identities([ORDERS]) or {})
    assert sink.count(ORDERS) == len(ROWS)


@pytest.mark.parametrize(
    ("where", "setting"),
    [
        ("_settings", {"index.blocks.read": True}),
        ("_settings", {"index.refresh_interval": "-1"}),
        ("_settings", {"index.refresh_interval": "1h"}),
        ("_settings", {"index.refresh_interval": "999micros"}),
        ("_close", None),
    ],
)
def test_an_index_that_readers_do_not_see_into_is_said_and_mended_as_it_is_told(
    server: Server, sink: ElasticsearchSink, where: str, setting: dict[str, Any] | None
) -> None:
    first = sink.identities([ORDERS])
    assert first
    server.ask("POST" if setting is None else "PUT", f"/{server.alias()}-g1/{where}", setting)
    assert sink.identities([ORDERS]) == {}
    with pytest.raises(SinkUnavailable) as caught:
        sink.prepare(ORDERS)
    assert (caught.value.code, caught.value.table) == ("ES_HIDDEN", ORDERS.table)
    method, target, *body = caught.value.hint.removeprefix("Take that back: ").split(" ", 2)
    server.ask(method, target, json.loads(body[0]) if body else None)
    sink.prepare(ORDERS)
    assert sink.identities([ORDERS]) == first
    assert sink.count(ORDERS) == len(ROWS)


@pytest.mark.parametrize(
    ("own", "given"), [("-1", "-1"), ("1h", "60m"), ("1h", "5m"), (None, "60s"), ("250ms", "60000ms")]
)
def test_an_index_may_be_refreshed_as_rarely_as_its_sink_asks_for_or_promises(
    server: Server, own: str | None, given: str
) -> None:
    with closing(server.sink(refresh_interval=own)) as sink:
        sink.prepare(ORDERS)
        server.ask("PUT", f"/{server.alias()}-g1/_settings", {"index.refresh_interval": given})
        sink.prepare(ORDERS)
        assert ORDERS.table in (sink.identities([ORDERS]) or {})


@pytest.mark.parametrize("how", ["dropped", "switched"])
def test_an_index_of_others_under_our_alias_is_not_deleted(
    server: Server, sink: ElasticsearchSink, how: str
) -> None:
    """It only loses the alias, whatever it is called."""
    alias = server.alias()
    others = {f"{alias}-archive", f"{alias}-2019", f"{alias}-g1-restored"}
    for index in others:
        server.client.request("PUT", f"/{index}", {"aliases": {alias: {"is_write_index": False}}})
    if how == "dropped":
        sink.drop(ORDERS)
    else:
        with closing(server.sink(shadow="r1")) as shadow:
            shadow.prepare(ORDERS)
            shadow.apply(ORDERS, ROWS)
            shadow.settle({("shop.public.orders", 0): 20})
            shadow.switch(ORDERS)
        assert server.client.request("GET", f"/_alias/{alias}").json().keys() == {f"{alias}-g2"}
        assert sink.count(ORDERS) == len(ROWS)
    left: Any = server.ask("GET", f"/{alias}*/_alias?expand_wildcards=all")
    assert not any(left[name]["aliases"] for name in others)
    assert left.keys() - others == (set() if how == "dropped" else {f"{alias}-g2", f"{alias}-deleted1"})
