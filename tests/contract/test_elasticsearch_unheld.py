"""Documents that Elasticsearch cannot take: kept beside the row where the settings say so, and read back."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from headrace.model.outcome import APPLIED, Rejected
from headrace.model.schema import LogicalType
from sinks.contract import table
from sinks.contract.story import at, expected, state, upsert
from tests.support.search import Server

pytestmark = pytest.mark.stack

DOCS = table(
    "docs",
    {
        "id": LogicalType.INT64,
        "a": LogicalType.JSON,
        "b": LogicalType.JSON,
        "n": LogicalType.INT64,
        "note": LogicalType.TEXT,
    },
    ["id"],
)
TWICE = '{"x": 1, "x": 1.10}'
NUL = '{"\\u0000": 1}'
DEEP = '{"d":' * 120 + "1" + "}" * 120


def _row(number: int, **values: Any) -> dict[str, Any]:
    return {**dict.fromkeys(DOCS.by_name), "id": number, "note": "-", **values}


def _source(server: Server, number: int) -> dict[str, Any]:
    source: dict[str, Any] = server.ask("GET", f"/{server.alias(DOCS)}/_doc/{number}")["_source"]
    return source


def test_without_a_setting_the_row_is_refused(server: Server) -> None:
    with closing(server.sink()) as sink:
        sink.prepare(DOCS)
        (outcome,) = sink.apply(DOCS, [upsert(DOCS, _row(1, a=TWICE), at(1))])
        assert isinstance(outcome, Rejected)
        assert state(sink, DOCS) == {}


def test_what_is_refused_is_kept_beside_the_row(server: Server) -> None:
    with closing(server.sink(unheld="null", **{"unheld.public.docs.b": "nearest"})) as sink:
        sink.prepare(DOCS)
        rows = [
            _row(1, a=TWICE, b='{"fine": 1}'),
            _row(2, a=DEEP, b=TWICE),
            _row(3, a='{"fine": 2}', b=NUL),
            _row(4, a='{"fine": 3}', b="[1]"),
        ]
        changes = [upsert(DOCS, row, at(row["id"])) for row in rows]
        malformed = upsert(DOCS, _row(5, a=TWICE, n="many"), at(5))
        *outcomes, last = sink.apply(DOCS, [*changes, malformed])
        assert outcomes == [APPLIED] * 4
        assert isinstance(last, Rejected)
        assert state(sink, DOCS) == expected(DOCS, changes)
        one, two, three, four = (_source(server, number) for number in range(1, 5))
        assert (one["a"], one["b"], one["_headrace"]["unheld"]) == (None, {"fine": 1}, {"a": TWICE})
        assert (two["a"], two["b"]) == (None, {"x": 1.10})
        assert two["_headrace"]["unheld"] == {"a": DEEP, "b": TWICE}
        assert (three["b"], three["_headrace"]["unheld"]) == (None, {"b": NUL})
        assert "unheld" not in four["_headrace"]


def test_what_a_change_leaves_out_keeps_what_is_beside_it(server: Server) -> None:
    with closing(server.sink(unheld="null")) as sink:
        sink.prepare(DOCS)
        sink.apply(DOCS, [upsert(DOCS, _row(1, a=TWICE), at(1))])
        later = upsert(DOCS, _row(1, a=TWICE, note="later"), at(2), absent=["a"])
        assert sink.apply(DOCS, [later]) == [APPLIED]
        assert state(sink, DOCS) == expected(DOCS, [upsert(DOCS, _row(1, a=TWICE, note="later"), at(2))])
        assert _source(server, 1)["_headrace"]["unheld"] == {"a": TWICE}
        fine = upsert(DOCS, _row(1, a="{}"), at(3))
        assert sink.apply(DOCS, [fine]) == [APPLIED]
        assert "unheld" not in _source(server, 1)["_headrace"]


def test_the_index_of_before_learns_where_such_documents_are_kept(server: Server) -> None:
    with closing(server.sink()) as before, closing(server.sink(unheld="null")) as sink:
        before.prepare(DOCS)
        assert sink.apply(DOCS, [upsert(DOCS, _row(1, a=TWICE), at(1))]) == [APPLIED]
        assert state(sink, DOCS) == expected(DOCS, [upsert(DOCS, _row(1, a=TWICE), at(1))])
