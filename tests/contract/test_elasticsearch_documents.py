"""JSON that would make a mapping grow, or change its mind, is a value like any other."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from headrace.model.outcome import APPLIED
from headrace.model.schema import LogicalType
from sinks.contract import table
from sinks.contract.story import at, expected, state, upsert
from tests.support.search import Server

pytestmark = pytest.mark.stack

EVENTS = table("events", {"id": LogicalType.INT64, "doc": LogicalType.JSON}, ["id"])


def fields(server: Server) -> str:
    """Return the index's mapping, as text."""
    mapping = server.ask("GET", f"/{server.alias(EVENTS)}/_mapping")
    return json.dumps([index["mappings"]["properties"] for index in mapping.values()], sort_keys=True)


def test_ten_thousand_new_keys_in_each_row_add_no_field(server: Server) -> None:
    with closing(server.sink()) as sink:
        sink.prepare(EVENTS)
        before = fields(server)
        docs = [json.dumps({f"k{row}_{n}": n for n in range(10_000)}) for row in range(3)]
        changes = [upsert(EVENTS, {"id": n, "doc": doc}, at(n)) for n, doc in enumerate([*docs, '{"a": 1}'])]
        assert sink.apply(EVENTS, changes) == [APPLIED] * 4
        assert state(sink, EVENTS) == expected(EVENTS, changes)
        assert fields(server) == before


def test_one_path_may_be_a_number_then_an_object_then_a_text(server: Server) -> None:
    with closing(server.sink()) as sink:
        sink.prepare(EVENTS)
        docs = [
            '{"a": 1}',
            '{"a": {"b": 2}}',
            '{"a": "text"}',
            '{"a": [1, {"b": [null]}]}',
            '{"a": null}',
            "7",
        ]
        changes = [upsert(EVENTS, {"id": n, "doc": doc}, at(n)) for n, doc in enumerate(docs)]
        assert sink.apply(EVENTS, changes) == [APPLIED] * len(docs)
        assert state(sink, EVENTS) == expected(EVENTS, changes)
