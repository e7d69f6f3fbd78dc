# ruff: noqa: S101
"""The suite every sink has to pass: subclass it, give it a sink, run it with pytest.

    class TestMySink(SinkContract):
        @pytest.fixture
        def sink(self): ...

The tests speak to the sink through its protocol only, on a real store. Set
``HEADRACE_TEST_BUDGET_SECS`` to let each property search for that long instead of its few examples.
"""

from __future__ import annotations

from typing import Any

import pytest

# Assertions in a shipped suite explain themselves only when asked for before the modules are imported.
pytest.register_assert_rewrite(
    "sinks.contract.story",
    "sinks.contract.order",
    "sinks.contract.fidelity",
    "sinks.contract.ownership",
    "sinks.contract.shadow",
)

from headrace.model.errors import SinkError  # noqa: E402
from headrace.model.finding import Severity  # noqa: E402
from headrace.model.life import life_of  # noqa: E402
from headrace.model.outcome import APPLIED, STALE  # noqa: E402
from headrace.model.schema import LogicalType  # noqa: E402
from sinks.base import REQUESTS, Sink  # noqa: E402
from sinks.contract.fidelity import FidelityContract  # noqa: E402
from sinks.contract.order import OrderContract  # noqa: E402
from sinks.contract.ownership import OwnershipContract  # noqa: E402
from sinks.contract.shadow import ShadowContract  # noqa: E402
from sinks.contract.story import ORDERS, at, delete, expected, order, state, table  # noqa: E402

__all__ = ["SinkContract", "table"]


class SinkContract(OrderContract, FidelityContract, OwnershipContract, ShadowContract):
    """What a sink promises, as tests.

    A subclass gives the fixture ``sink``: a sink on an empty, real store of its own, closed and cleared
    afterwards. It may override the attributes and :meth:`reopen`.

    Attributes:
        examples: How many draws each property makes; few where one ``apply`` is slow.
        bad_table: The table of ``bad_row``; its key is one integer column.
        bad_row: Columns of a row of ``bad_table`` the store must refuse by name, or None where the
            store takes everything.
    """

    def reopen(self, sink: Any) -> Sink:
        """Return another object upon the same store, as another process would build it."""
        again: Sink = type(sink)(sink.name, sink.config)
        return again

    def test_it_is_a_sink_that_may_be_used(self, sink: Sink) -> None:
        assert isinstance(sink, Sink)
        assert [finding for finding in sink.check() if finding.severity is Severity.ERROR] == []

    def test_prepare_twice_keeps_what_is_there(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        assert state(sink, ORDERS) == {}
        assert sink.apply(ORDERS, []) == []
        sink.apply(ORDERS, [order(1, at(1))])
        sink.prepare(ORDERS)
        assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(1))])
        assert sink.target(ORDERS).table == ORDERS.table

    @pytest.mark.parametrize("kind", [LogicalType.INT64, LogicalType.TEXT, LogicalType.TIMESTAMP])
    def test_its_check_knows_what_prepare_refuses(self, sink: Sink, kind: LogicalType) -> None:
        """And refuses nothing else, when a column has changed its type."""
        before = table("orders", {"id": LogicalType.INT32, "n": LogicalType.INT32}, ["id"])
        after = table("orders", {"id": LogicalType.INT32, "n": kind}, ["id"])
        assert [one for one in sink.check([before]) if one.severity is Severity.ERROR] == []
        sink.prepare(before)
        again = self.reopen(sink)
        try:
            told = {one.code for one in again.check([after]) if one.severity is Severity.ERROR}
            refused: set[str] = set()
            try:
                again.prepare(after)
            except SinkError as error:
                refused = {error.code}
            assert told == refused
        finally:
            again.close()

    def test_a_target_is_there_from_prepare_to_drop(self, sink: Sink) -> None:
        assert not sink.exists(ORDERS)
        sink.prepare(ORDERS)
        assert sink.exists(ORDERS)
        assert self.reopen(sink).exists(ORDERS)
        assert not sink.exists(table("others", {"id": LogicalType.INT32}, ["id"]))
        sink.drop(ORDERS)
        assert not sink.exists(ORDERS)

    def test_another_object_sees_the_same(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(1)), order(2, at(9)), delete(ORDERS, 3, at(8))])
        sink.settle({("shop.public.orders", 0): 9})
        again = self.reopen(sink)
        try:
            again.prepare(ORDERS)
            assert state(again, ORDERS) == expected(ORDERS, [order(1, at(1)), order(2, at(9))])
            assert dict(again.progress()) == {("shop.public.orders", 0): 9}
            assert again.target(ORDERS) == sink.target(ORDERS)
            assert again.apply(ORDERS, [order(1, at(5)), order(2, at(5)), order(3, at(5))]) == [
                APPLIED,
                STALE,
                STALE,
            ]
        finally:
            again.close()

    def test_drop_removes_everything(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(5)), delete(ORDERS, 2, at(6))])
        sink.drop(ORDERS)
        sink.prepare(ORDERS)
        assert state(sink, ORDERS) == {}
        assert sink.apply(ORDERS, [order(1, at(1)), order(2, at(2))]) == [APPLIED, APPLIED]

    def test_a_target_that_was_made_anew_is_another(self, sink: Sink) -> None:
        """Whatever has put it there: its rows of before are gone."""
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(1))])
        first = sink.identities([ORDERS])
        assert sink.identities([ORDERS]) == first
        sink.drop(ORDERS)
        assert not sink.identities([ORDERS])
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(2, at(2))])
        second = sink.identities([ORDERS])
        again = self.reopen(sink)
        try:
            assert again.identities([ORDERS]) == second
        finally:
            again.close()
        if first is not None:  # else its progress tells all
            assert ORDERS.table in first
            assert second is not None
            assert first[ORDERS.table] != second[ORDERS.table]

    def test_tidying_up_changes_nothing_and_comes_to_an_end(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        changes = [order(number, at(number)) for number in range(1, 8)]
        for change in changes:
            sink.apply(ORDERS, [change])
        sink.apply(ORDERS, [delete(ORDERS, 7, at(20))])
        looks = 1
        while sink.maintain(1.0):
            looks += 1
            assert looks < 30
        assert state(sink, ORDERS) == expected(ORDERS, changes[:6])
        assert sink.apply(ORDERS, [order(7, at(19)), order(1, at(21), item="jug")]) == [STALE, APPLIED]
        assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(21), item="jug"), *changes[1:6]])

    def test_progress_round_trips(self, sink: Sink) -> None:
        assert dict(sink.progress()) == {}
        sink.settle({("shop.public.orders", 0): 5, ("shop.public.orders", 1): 2**40})
        sink.settle({("shop.public.orders", 0): 6, ("shop.public.a-b_c", 0): 0})
        assert dict(sink.progress()) == {
            ("shop.public.orders", 0): 6,
            ("shop.public.orders", 1): 2**40,
            ("shop.public.a-b_c", 0): 0,
        }
        named = [("shop.public.a-b_c", 0), ("shop.public.orders", 0), ("shop.public.never", 0)]
        assert dict(sink.progress(named)) == {("shop.public.orders", 0): 6, ("shop.public.a-b_c", 0): 0}
        assert dict(sink.progress([])) == {}

    def test_marks_of_requests_are_progress_like_any_other(self, sink: Sink) -> None:
        life = life_of("shop.public.orders", "AbC-_1")
        for mark in (1_800_000_000_000, 1_800_000_000_001):
            sink.settle({(life, 0): 5, (life, REQUESTS): mark})
            assert dict(sink.progress([(life, REQUESTS)])) == {(life, REQUESTS): mark}
        assert dict(sink.progress()) == {(life, 0): 5, (life, REQUESTS): 1_800_000_000_001}
        sink.forget(["shop.public.orders"])
        assert dict(sink.progress()) == {}

    def test_progress_of_another_incarnation_is_told_apart(self, sink: Sink) -> None:
        before, now = (life_of("shop.public.orders", name) for name in ("AbC-_1", "xyz"))
        sink.settle({(before, 0): 5000, ("shop.public.orders", 0): 4})
        assert dict(sink.progress([(now, 0)])) == {}
        sink.settle({(now, 0): 300})
        assert dict(sink.progress([(now, 0), (before, 0)])) == {(now, 0): 300, (before, 0): 5000}
        sink.forget(["shop.public.orders"])
        assert dict(sink.progress()) == {}

    def test_only_the_progress_of_named_topics_is_forgotten(self, sink: Sink) -> None:
        sink.forget(["shop.public.orders"])
        sink.settle({("shop.public.orders", 0): 5, ("shop.public.orders", 1): 7, ("shop.public.order", 0): 3})
        sink.forget(["shop.public.orders", "shop.public.never"])
        assert dict(sink.progress()) == {("shop.public.order", 0): 3}
        sink.forget({"shop.public.order": 1}.keys())
        assert dict(sink.progress()) == {}
        sink.settle({("shop.public.orders", 0): 8})
        assert dict(sink.progress()) == {("shop.public.orders", 0): 8}
