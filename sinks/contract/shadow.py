# ruff: noqa: S101
"""The part of the contract about shadows: filled unseen, served from one moment to the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar

import pytest

from headrace.model.change import Change
from headrace.model.claim import Claim
from headrace.model.errors import SinkError
from headrace.model.outcome import APPLIED, STALE
from headrace.model.schema import LogicalType, TableSchema
from headrace.observe import failpoints
from sinks.base import Sink
from sinks.contract.story import ORDERS, Suite, at, delete, expected, order, state, table, upsert
from sinks.shadow import SHADOW

__all__ = ["ShadowContract"]

PLACE = ("shop.public.orders", 0)
OLD = [order(number, at(number), item="old") for number in range(1, 41)]
NEW = [order(number, at(number + 100), item="new") for number in range(1, 41)]


class _Killed(Exception):
    """Stands for the end of the process."""


def _served(sink: Sink) -> None:
    sink.prepare(ORDERS)
    assert sink.apply(ORDERS, OLD) == [APPLIED] * len(OLD)
    sink.settle({PLACE: 40})


def _filled(shadow: Sink) -> None:
    shadow.prepare(ORDERS)
    assert shadow.apply(ORDERS, NEW) == [APPLIED] * len(NEW)
    shadow.settle({PLACE: 140})


class ShadowContract(Suite):
    """A table's shadow is a target of its own until it takes the serving target's place.

    Attributes:
        typed: Whether the store keeps a type for each column, so that a target can be of the wrong shape.
    """

    typed: ClassVar[bool] = True

    def shadow_of(self, sink: Any, name: str = "r1") -> Sink:
        """Return a shadow of a sink, as :func:`sinks.registry.build` would make it."""
        shadow: Sink = type(sink)(sink.name, sink.config.model_copy(update={SHADOW: name}))
        return shadow

    @contextmanager
    def shadow(self, sink: Sink, name: str = "r1") -> Iterator[Sink]:
        with closing(self.shadow_of(sink, name)) as shadow:
            yield shadow

    def test_a_shadow_is_filled_unseen(self, sink: Any) -> None:
        _served(sink)
        with self.shadow(sink) as shadow:
            _filled(shadow)
            assert state(shadow, ORDERS) == expected(ORDERS, NEW)
            assert dict(shadow.progress()) == {PLACE: 140}
            assert shadow.target(ORDERS) != sink.target(ORDERS)
            # Else whoever fills it would take it for lost, and fill it again for ever.
            told = shadow.identities([ORDERS])
            assert told is None or told.keys() == {ORDERS.table}
            assert shadow.identities([ORDERS]) == told
            assert state(sink, ORDERS) == expected(ORDERS, OLD)
            assert dict(sink.progress()) == dict(sink.progress([PLACE])) == {PLACE: 40}
            claim = Claim("somebody", sink.name, "here", engine=True, at_ms=1)
            assert shadow.claim([ORDERS], claim, {}) == []
            assert sink.claims([ORDERS]) == {}
            assert sink.apply(ORDERS, [order(1, at(41), item="still served")]) == [APPLIED]

    def test_a_shadow_is_served_from_one_moment_to_the_next(self, sink: Any) -> None:
        _served(sink)
        target = sink.target(ORDERS)
        seen: list[tuple[int, frozenset[str]]] = []
        stop = threading.Event()
        failed: list[BaseException] = []

        def read() -> None:
            try:
                with closing(type(sink)(sink.name, sink.config)) as reader:
                    while not stop.is_set():
                        rows = reader.rows(ORDERS, [change.key for change in OLD]).values()
                        seen.append((len(rows), frozenset(stored.row["item"] for stored in rows)))
            except BaseException as error:  # noqa: BLE001 - told by the test
                failed.append(error)

        with self.shadow(sink) as shadow:
            _filled(shadow)
            reader = threading.Thread(target=read)
            reader.start()
            try:
                shadow.switch(ORDERS)
            finally:
                stop.wait(0.3)
                stop.set()
                reader.join()
            assert failed == []
            assert set(seen) <= {(40, frozenset({"old"})), (40, frozenset({"new"}))}
            assert state(sink, ORDERS) == expected(ORDERS, NEW)
            assert dict(sink.progress([PLACE])) == {PLACE: 140}
            assert sink.target(ORDERS) == target
            assert shadow.progress() == {}
            shadow.switch(ORDERS)
        assert state(sink, ORDERS) == expected(ORDERS, NEW)
        assert dict(sink.progress([PLACE])) == {PLACE: 140}

    def test_it_is_filled_under_another_name_than_it_is_switched_to(self, sink: Any) -> None:
        _served(sink)
        filler: Sink = type(sink)(f"{sink.name}.r1t0", sink.config.model_copy(update={SHADOW: "r1"}))
        with self.shadow(sink) as shadow:
            shadow.prepare(ORDERS)
            with closing(filler):
                _filled(filler)
            shadow.switch(ORDERS)
        assert state(sink, ORDERS) == expected(ORDERS, NEW)
        assert dict(sink.progress([PLACE])) == {PLACE: 140}

    def test_order_is_kept_through_a_switch(self, sink: Sink) -> None:
        _served(sink)
        sink.apply(ORDERS, [delete(ORDERS, 90, at(50))])
        with self.shadow(sink) as shadow:
            _filled(shadow)
            later = [order(1, at(141), item="later"), delete(ORDERS, 2, at(142)), delete(ORDERS, 3, at(143))]
            assert sink.apply(ORDERS, later) == [APPLIED] * 3
            assert shadow.apply(ORDERS, later) == [APPLIED] * 3
            shadow.settle({PLACE: 143})
            shadow.switch(ORDERS)
        with closing(self.again(sink)) as sink:
            assert state(sink, ORDERS) == expected(ORDERS, [later[0], *NEW[3:]])
            past = [order(1, at(99)), order(2, at(141)), order(90, at(49)), order(4, at(103))]
            assert sink.apply(ORDERS, past) == [STALE] * 4
            assert sink.apply(ORDERS, [order(2, at(144)), order(90, at(51))]) == [APPLIED] * 2

    def again(self, sink: Any) -> Sink:
        """Return another object upon the same store."""
        fresh: Sink = type(sink)(sink.name, sink.config)
        return fresh

    def test_a_shadow_that_is_behind_lowers_the_progress(self, sink: Sink) -> None:
        _served(sink)
        sink.settle({PLACE: 500, ("shop.public.items", 0): 7})
        with self.shadow(sink) as shadow:
            _filled(shadow)
            shadow.switch(ORDERS)
        assert dict(sink.progress()) == {PLACE: 140, ("shop.public.items", 0): 7}

    def test_rows_that_the_shadow_does_not_have_are_gone(self, sink: Sink) -> None:
        _served(sink)
        with self.shadow(sink) as shadow:
            shadow.prepare(ORDERS)
            shadow.apply(ORDERS, NEW[:5])
            shadow.settle({PLACE: 140})
            shadow.switch(ORDERS)
            assert state(sink, ORDERS) == expected(ORDERS, NEW[:5])
        with self.shadow(sink, "r2") as shadow:
            shadow.prepare(ORDERS)
            shadow.settle({PLACE: 150})
            shadow.switch(ORDERS)
            assert state(sink, ORDERS) == {}

    def test_a_target_that_is_gone_is_made_by_the_switch(self, sink: Sink) -> None:
        _served(sink)
        sink.drop(ORDERS)
        with self.shadow(sink) as shadow:
            _filled(shadow)
            shadow.switch(ORDERS)
        with closing(self.again(sink)) as sink:
            sink.prepare(ORDERS)
            assert state(sink, ORDERS) == expected(ORDERS, NEW)
            assert dict(sink.progress([PLACE])) == {PLACE: 140}
            assert sink.apply(ORDERS, [order(1, at(141)), order(2, at(5))]) == [APPLIED, STALE]

    def test_a_target_of_another_shape_is_replaced(self, sink: Sink) -> None:
        before = table("counts", {"id": LogicalType.INT64, "n": LogicalType.TEXT}, ["id"])
        after = table("counts", {"id": LogicalType.INT64, "n": LogicalType.INT64}, ["id"])
        sink.prepare(before)
        sink.apply(before, [_row(before, n, str(n)) for n in range(5)])
        sink.settle({PLACE: 4})
        if self.typed:
            with pytest.raises(SinkError) as refused:
                sink.prepare(after)
            assert refused.value.table == after.table
            assert refused.value.hint == f"headrace resnapshot SOURCE {after.table}"
        with self.shadow(sink) as shadow:
            shadow.prepare(after)
            rows = [_row(after, n, n, offset=10 + n) for n in range(5)]
            assert shadow.apply(after, rows) == [APPLIED] * 5
            shadow.settle({PLACE: 14})
            shadow.switch(after)
        with closing(self.again(sink)) as sink:
            sink.prepare(after)
            assert state(sink, after) == expected(after, rows)
            assert sink.apply(after, [_row(after, 9, 9, offset=20)]) == [APPLIED]

    @pytest.mark.deep
    def test_a_switch_goes_on_wherever_it_was_killed(
        self, sink: Sink, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for last in range(20):
            past, to_come = ([_again(change, last) for change in changes] for changes in (OLD, NEW))
            sink.prepare(ORDERS)
            sink.apply(ORDERS, past)
            sink.settle({PLACE: 1_000 * last + 40})
            visits = 0

            def hit(_name: str, _where: str, last: int = last) -> None:
                nonlocal visits
                visits += 1
                if visits == last + 1:
                    raise _Killed

            killed = False
            with self.shadow(sink, f"k{last}") as shadow:
                shadow.prepare(ORDERS)
                shadow.apply(ORDERS, to_come)
                shadow.settle({PLACE: 1_000 * last + 140})
                with monkeypatch.context() as patched:
                    patched.setattr(failpoints, "hit", hit)
                    try:
                        shadow.switch(ORDERS)
                    except _Killed:
                        killed = True
            with closing(self.again(sink)) as other:
                assert state(other, ORDERS) in (expected(ORDERS, past), expected(ORDERS, to_come))
            with self.shadow(sink, f"k{last}") as shadow:
                shadow.switch(ORDERS)
                assert shadow.progress() == {}
            with closing(self.again(sink)) as other:
                assert state(other, ORDERS) == expected(ORDERS, to_come)
                assert dict(other.progress([PLACE])) == {PLACE: 1_000 * last + 140}
            if not killed:
                return
        raise AssertionError("a switch has too many steps")

    def test_a_shadow_that_is_given_up_leaves_what_is_served(self, sink: Sink) -> None:
        _served(sink)
        with self.shadow(sink) as shadow:
            _filled(shadow)
            shadow.apply(ORDERS, [delete(ORDERS, 1, at(300))])
            shadow.drop(ORDERS)
            shadow.forget([PLACE[0]])
            assert shadow.progress() == {}
            assert not shadow.identities([ORDERS])
            shadow.switch(ORDERS)
        assert state(sink, ORDERS) == expected(ORDERS, OLD)
        assert dict(sink.progress()) == {PLACE: 40}
        assert sink.apply(ORDERS, [order(1, at(299))]) == [APPLIED], "what the shadow deleted is forgotten"

    def test_what_is_not_settled_is_not_switched_to(self, sink: Sink) -> None:
        _served(sink)
        with self.shadow(sink) as shadow:
            shadow.prepare(ORDERS)
            with pytest.raises(SinkError) as refused:
                shadow.switch(ORDERS)
            assert (refused.value.code, refused.value.table) == ("SHADOW_UNSETTLED", ORDERS.table)
        with pytest.raises(SinkError) as refused:
            sink.switch(ORDERS)
        assert refused.value.code == "SHADOW_NONE"
        assert state(sink, ORDERS) == expected(ORDERS, OLD)


def _again(change: Change, times: int) -> Change:
    """Return the same change, later."""
    return upsert(ORDERS, change.row, at(change.position.offset + 1_000 * times))


def _row(schema: TableSchema, number: int, value: Any, offset: int = 0) -> Change:
    """Return the upsert of a row of two columns."""
    return upsert(schema, {"id": number, "n": value}, at(offset or number))
