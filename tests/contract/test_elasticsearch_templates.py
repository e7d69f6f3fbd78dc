"""Index templates of the cluster that would take our indexes: found before anything is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from headrace.model.errors import SinkError
from headrace.model.finding import Severity
from headrace.model.outcome import APPLIED
from headrace.model.schema import TableId
from sinks.contract.story import ORDERS, at, expected, order, state
from sinks.elasticsearch.client import path
from tests.support.search import Server

pytestmark = pytest.mark.stack


@contextmanager
def template(
    server: Server, body: dict[str, Any], kind: str = "_index_template", name: str = "template"
) -> Iterator[str]:
    """Have a template; other tests use the server at the same time, so it is for our names only."""
    name = f"{server.prefix}{name}"
    server.ask("PUT", path(kind, name), body)
    try:
        yield name
    finally:
        server.ask("DELETE", path(kind, name))


def errors(server: Server) -> dict[str, str]:
    sink = server.sink()
    found = sink.check([ORDERS])
    sink.close()
    return {one.code: one.message + one.hint for one in found if one.severity is Severity.ERROR}


@pytest.mark.parametrize(
    ("made", "code", "words"),
    [
        ({"data_stream": {}}, "ES_TEMPLATE_DATA_STREAM", "data stream"),
        ({"template": {"settings": {"index.final_pipeline": "p"}}}, "ES_TEMPLATE_CHANGES", "pipeline p"),
        ({"template": {"mappings": {"_source": {"excludes": ["item"]}}}}, "ES_TEMPLATE_CHANGES", "_source"),
        ({"template": {"mappings": {"_routing": {"required": True}}}}, "ES_TEMPLATE_CHANGES", "_routing"),
        (
            {"template": {"settings": {"index.mapping.source.mode": "synthetic"}}},
            "ES_TEMPLATE_CHANGES",
            "synthetic",
        ),
        (
            {"template": {"settings": {"index.mode": "logsdb", "index.mapping.source.mode": "stored"}}},
            "ES_TEMPLATE_CHANGES",
            "@timestamp",
        ),
    ],
)
def test_a_template_that_makes_something_else_of_an_index(
    server: Server, made: dict[str, Any], code: str, words: str
) -> None:
    assert errors(server) == {}
    pattern = f"{server.alias()}*"
    with template(server, {"index_patterns": [pattern], "priority": 500, **made}) as name:
        (told,) = errors(server).items()
        assert told[0] == code
        assert all(word in told[1] for word in (name, words, pattern, "--prefix"))


def test_a_template_that_takes_one_table_of_two_is_told_of_that_one(server: Server) -> None:
    other = replace(ORDERS, table=TableId(ORDERS.table.schema, "others"))
    body = {"index_patterns": [f"{server.alias()}-*"], "priority": 500, "data_stream": {}}
    with template(server, body), closing(server.sink()) as sink:
        told = [one for one in sink.check([other, ORDERS]) if one.severity is Severity.ERROR]
    assert [(one.code, one.table) for one in told] == [("ES_TEMPLATE_DATA_STREAM", ORDERS.table)]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"settings": {"index.final_pipeline": "p"}}, "pipeline p"),
        ({"mappings": {"_source": {"excludes": ["item"]}}}, "_source"),
        ({"settings": {"index.mapping.source.mode": "synthetic"}}, "synthetic"),
    ],
)
def test_a_template_of_the_old_kind_makes_something_else_of_an_index_as_well(
    server: Server, made: dict[str, Any], words: str
) -> None:
    pattern = f"{server.alias()}*"
    with template(server, {"index_patterns": [pattern], **made}, "_template") as name:
        (told,) = errors(server).items()
        assert told[0] == "ES_TEMPLATE_CHANGES"
        assert all(word in told[1] for word in (name, words, pattern, "--prefix"))
        # One of the new kind takes its place.
        with template(server, {"index_patterns": [pattern], "priority": 500}):
            assert errors(server) == {}
    with template(
        server, {"index_patterns": [pattern], "settings": {"index.refresh_interval": "5s"}}, "_template"
    ):
        assert errors(server) == {}


def test_a_template_that_has_indexes_refreshed_rarely_hides_no_row(server: Server) -> None:
    """Nobody could take it back: `sink add` removes what it has made when it is refused."""
    body = {"template": {"settings": {"index.refresh_interval": "30m"}}, "priority": 500}
    with template(server, {"index_patterns": [f"{server.prefix}*"], **body}), closing(server.sink()) as sink:
        sink.prepare(ORDERS)
        assert ORDERS.table in (sink.identities([ORDERS]) or {})


def test_a_template_that_comes_after_the_check_sends_no_row_through_a_pipeline(server: Server) -> None:
    """There is none of that name: a row that came to it would be refused."""
    settings = {f"index.{name}_pipeline": f"{server.prefix}none" for name in ("default", "final")}
    body = {"index_patterns": [f"{server.prefix}*"], "template": {"settings": settings}, "priority": 500}
    with template(server, body), closing(server.sink()) as sink:
        sink.prepare(ORDERS)
        assert sink.apply(ORDERS, [order(1, at(1))]) == [APPLIED]
        assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(1))])


@pytest.mark.parametrize(
    "mappings", [{"_source": {"excludes": ["item"]}}, {"_routing": {"required": True}}], ids=str
)
@pytest.mark.parametrize("shadow", ["", "r1"])
def test_a_template_that_comes_after_the_check_cuts_no_row(
    server: Server, mappings: dict[str, Any], shadow: str
) -> None:
    row = order(1, at(1))
    body = {"index_patterns": [f"{server.alias()}-g*"], "template": {"mappings": mappings}, "priority": 500}
    with closing(server.sink(shadow=shadow)) as sink:
        with template(server, body) as name, pytest.raises(SinkError) as caught:
            sink.prepare(ORDERS)
        assert (caught.value.code, caught.value.table) == ("ES_TEMPLATE_CHANGES", ORDERS.table)
        assert name in caught.value.message
        assert not sink.exists(ORDERS)
        sink.prepare(ORDERS)
        assert sink.apply(ORDERS, [row]) == [APPLIED]
        assert state(sink, ORDERS) == expected(ORDERS, [row])


def test_the_template_that_cuts_rows_is_told_and_not_one_beside_it(server: Server) -> None:
    pattern = {"index_patterns": [f"{server.alias()}-g*"]}
    beside = {**pattern, "settings": {"index.default_pipeline": f"{server.prefix}none"}}
    cut = {**pattern, "mappings": {"_source": {"excludes": ["item"]}}}
    with closing(server.sink()) as sink, ExitStack() as there:
        for name in "abyz":
            there.enter_context(template(server, beside, "_template", name))
        told = there.enter_context(template(server, cut, "_template", "m"))
        with pytest.raises(SinkError) as caught:
            sink.prepare(ORDERS)
        assert caught.value.message.startswith(f"The index template {told} ")


@pytest.mark.parametrize("kind", ["_index_template", "_template"])
def test_a_template_that_has_documents_stored_as_they_are_is_nothing_to_us(server: Server, kind: str) -> None:
    row = order(1, at(1))
    made = {"mappings": {"_source": {"mode": "stored"}}, "settings": {"index.mapping.source.mode": "stored"}}
    body = {"template": made, "priority": 500} if kind == "_index_template" else made
    with template(server, {"index_patterns": [f"{server.prefix}*"], **body}, kind):
        assert errors(server) == {}
        with closing(server.sink()) as sink:
            sink.prepare(ORDERS)
            assert sink.apply(ORDERS, [row]) == [APPLIED]
            assert state(sink, ORDERS) == expected(ORDERS, [row])


def test_an_index_that_cuts_rows_is_told_until_it_is_made_anew(server: Server) -> None:
    """As when who made it was killed before it was looked at."""
    alias = server.alias()
    cut = {"_source": {"excludes": ["item"]}}
    server.ask("PUT", path(f"{alias}-g1"), {"mappings": cut, "aliases": {alias: {"is_write_index": True}}})
    with closing(server.sink()) as sink:
        for _ in range(2):
            with pytest.raises(SinkError) as caught:
                sink.prepare(ORDERS)
            assert (caught.value.code, caught.value.table) == ("ES_TEMPLATE_CHANGES", ORDERS.table)
        server.ask("DELETE", path(f"{alias}-g1"))
        sink.prepare(ORDERS)


def test_a_template_that_changes_no_row_and_one_for_others_are_nothing_to_us(server: Server) -> None:
    harmless = {"template": {"settings": {"index.refresh_interval": "5s"}}}
    with template(server, {"index_patterns": [f"{server.prefix}*"], "priority": 500, **harmless}):
        assert errors(server) == {}
    with template(
        server, {"index_patterns": ["x" + server.prefix + "*"], "priority": 500, "data_stream": {}}
    ):
        assert errors(server) == {}
    sink = server.sink()
    sink.prepare(ORDERS)
    sink.close()
    with template(server, {"index_patterns": [f"{server.alias()}-g*"], "priority": 500, "data_stream": {}}):
        assert errors(server) == {}, "what is there already is not made again"


def test_a_cluster_without_room_for_the_shards(server: Server) -> None:
    sink = server.sink(shards=1000)
    codes = {one.code: one.message for one in sink.check([ORDERS]) if one.severity is Severity.ERROR}
    sink.close()
    assert "needs 4000 shards" in codes["ES_SHARDS"]
    assert errors(server) == {}


def test_a_pipeline_that_an_index_is_given_later_gets_no_row(server: Server) -> None:
    """There is none of that name: a row that came to it would be refused."""
    with closing(server.sink()) as sink:
        sink.prepare(ORDERS)
        server.ask(
            "PUT", path(server.alias(), "_settings"), {"index.default_pipeline": f"{server.prefix}none"}
        )
        assert sink.apply(ORDERS, [order(1, at(1))]) == [APPLIED]
        assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(1))])


def test_what_is_applied_is_on_the_disk_whatever_a_template_says(server: Server) -> None:
    lazy = {"settings": {"index.translog.durability": "async"}}
    body = {"index_patterns": [f"{server.prefix}*"], "template": lazy, "priority": 500}
    with template(server, body), closing(server.sink()) as sink:
        sink.prepare(ORDERS)
        told = server.ask("GET", path(server.alias(), "_settings") + "?flat_settings=true")
    assert {one["settings"]["index.translog.durability"] for one in told.values()} == {"request"}
