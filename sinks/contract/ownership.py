# ruff: noqa: S101
"""One writer per target: claims are seen by all, and of several at once one wins."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

from headrace.model.claim import Claim
from headrace.model.schema import LogicalType, TableId
from sinks.base import Sink
from sinks.contract.story import ORDERS, table

__all__ = ["OwnershipContract"]

_ITEMS = table("Order items", {"id": LogicalType.INT64}, ["id"], schema="a.b")
_BOTH = [ORDERS, _ITEMS]


def _claim(name: str) -> Claim:
    return Claim.new(name, "home", engine=True)


def _at_once(gate: Barrier, standing: Mapping[TableId, Claim], sink: Sink, claim: Claim) -> list[TableId]:
    gate.wait()
    return sink.claim([ORDERS], claim, standing)


class OwnershipContract:
    """What a sink promises of claims."""

    def reopen(self, sink: Any) -> Sink:
        """Return another object upon the same store; see the suite."""
        raise AssertionError("the suite gives it")

    def test_a_claim_is_seen_by_everybody(self, sink: Sink) -> None:
        for schema in _BOTH:
            sink.prepare(schema)
        assert sink.claims(_BOTH) == {}
        mine = _claim("mine")
        assert sink.claim(_BOTH, mine, {}) == []
        again = self.reopen(sink)
        try:
            assert again.claims(_BOTH) == {ORDERS.table: mine, _ITEMS.table: mine}
            assert again.claims([_ITEMS]) == {_ITEMS.table: mine}
            assert again.claims([]) == {}
        finally:
            again.close()
        for schema in _BOTH:
            sink.drop(schema)
        assert sink.claims(_BOTH) == {}

    def test_a_claim_replaces_only_what_its_maker_has_seen(self, sink: Sink) -> None:
        for schema in _BOTH:
            sink.prepare(schema)
        first, second, late = _claim("first"), _claim("second"), _claim("late")
        assert sink.claim([ORDERS], first, {}) == []
        assert sink.claim(_BOTH, late, {}) == [ORDERS.table]
        assert sink.claim([ORDERS], second, {ORDERS.table: first}) == []
        assert sink.claim(_BOTH, first, {ORDERS.table: first, _ITEMS.table: late}) == [ORDERS.table]
        assert sink.claims(_BOTH) == {ORDERS.table: second, _ITEMS.table: first}

    def test_of_many_at_once_one_wins(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        standing: dict[TableId, Claim] = {}
        for turn in range(3):
            claims = [_claim(f"{turn}-{number}") for number in range(4)]
            others = [self.reopen(sink) for _ in claims]
            gate = Barrier(len(claims))
            with ThreadPoolExecutor(len(claims)) as pool:
                lost = list(pool.map(partial(_at_once, gate, standing), others, claims))
            for other in others:
                other.close()
            assert lost.count([]) == 1
            standing = sink.claims([ORDERS])
            assert standing == {ORDERS.table: claims[lost.index([])]}
