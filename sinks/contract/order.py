# ruff: noqa: S101
"""The part of the contract about order: newer wins, whatever arrives when."""

from __future__ import annotations

from hypothesis import strategies as st

from headrace.model.change import Change
from headrace.model.outcome import APPLIED, ROW_MISSING, STALE, Outcome
from headrace.model.position import MAX_EPOCH, MAX_OFFSET
from headrace.model.values import canonical_row
from sinks.base import Sink
from sinks.contract.story import (
    ORDERS,
    Suite,
    at,
    delete,
    expected,
    order,
    search,
    state,
    upsert,
)

__all__ = ["OrderContract"]


class OrderContract(Suite):
    """Newer wins, per key; deleted stays deleted; what a change leaves out stays."""

    # ------------------------------------------------------------ order

    def test_applying_twice_equals_once(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(3, at(1))])
        batch = [order(1, at(2)), order(2, at(3)), delete(ORDERS, 3, at(4)), delete(ORDERS, 4, at(5))]
        assert sink.apply(ORDERS, batch) == [APPLIED] * 4
        once = state(sink, ORDERS)
        assert sink.apply(ORDERS, batch) == [APPLIED] * 4
        assert state(sink, ORDERS) == once == expected(ORDERS, batch[:2])

    def test_an_update_replaces_the_whole_row(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(1), note="long ago")])
        newer = order(1, at(2), item="jug", note=None)
        assert sink.apply(ORDERS, [newer]) == [APPLIED]
        assert state(sink, ORDERS) == expected(ORDERS, [newer])

    def test_outcomes_come_in_the_order_of_the_changes(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(10)), delete(ORDERS, 2, at(10)), order(3, at(1)), order(6, at(10))])
        outcomes = sink.apply(
            ORDERS,
            [
                order(1, at(5)),
                order(4, at(6)),
                order(2, at(7)),
                order(5, at(8), absent=["note"]),
                delete(ORDERS, 6, at(9)),
                order(3, at(11), absent=["note"]),
            ],
        )
        assert outcomes == [STALE, APPLIED, STALE, ROW_MISSING, STALE, APPLIED]

    def test_any_order_per_key_ends_the_same(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        first_id = iter(range(0, 10**9, 100))
        histories = st.lists(
            st.lists(st.booleans(), min_size=1, max_size=4).flatmap(
                lambda ops: st.permutations(list(enumerate(ops, start=1)))
            ),
            min_size=20,
            max_size=40,
        )

        def check(drawn: list[list[tuple[int, bool]]]) -> None:
            base = next(first_id)
            newest: dict[int, int] = {}
            alive: dict[str, Change] = {}
            for turn in range(4):
                batch: list[Change] = []
                outcomes: list[Outcome] = []
                for number, history in enumerate(drawn, start=base):
                    if turn >= len(history):
                        continue
                    offset, gone = history[turn]
                    change = (
                        delete(ORDERS, number, at(offset))
                        if gone
                        else order(number, at(offset), item=str(offset))
                    )
                    batch.append(change)
                    fresh = offset > newest.get(number, 0)
                    outcomes.append(APPLIED if fresh else STALE)
                    if fresh:
                        newest[number] = offset
                        alive.pop(change.key.id, None)
                        if not gone:
                            alive[change.key.id] = change
                assert sink.apply(ORDERS, batch) == outcomes
            ours = {str(number) for number in range(base, base + 100)}
            found = {key: row for key, row in state(sink, ORDERS).items() if key in ours}
            assert found == expected(ORDERS, alive.values())

        search(histories, check, max(2, self.examples // 3))

    def test_versions_beyond_a_double_are_told_apart(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        middle = [at(5, epoch=2**17), at(MAX_OFFSET - 1, MAX_EPOCH), at(0, epoch=1), at(2**38)]
        sink.apply(ORDERS, [order(n, position) for n, position in enumerate(middle)])
        older = [at(4, epoch=2**17), at(MAX_OFFSET - 2, MAX_EPOCH), at(MAX_OFFSET, epoch=0), at(2**38 - 1)]
        assert sink.apply(ORDERS, [order(n, position) for n, position in enumerate(older)]) == [STALE] * 4
        newer = [at(6, epoch=2**17), at(MAX_OFFSET, MAX_EPOCH), at(1, epoch=1), at(2**38 + 1)]
        changes = [order(n, position, item="new") for n, position in enumerate(newer)]
        assert sink.apply(ORDERS, changes) == [APPLIED] * 4
        assert state(sink, ORDERS) == expected(ORDERS, changes)

    # ------------------------------------------------------------ deletes

    def test_deleted_stays_deleted_against_the_past(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(1)), order(2, at(2))])
        assert sink.apply(ORDERS, [delete(ORDERS, 1, at(8)), delete(ORDERS, 9, at(9))]) == [APPLIED, APPLIED]
        assert sink.apply(ORDERS, [order(1, at(7)), order(9, at(7))]) == [STALE, STALE]
        assert sink.apply(ORDERS, [delete(ORDERS, 1, at(6)), delete(ORDERS, 2, at(1))]) == [STALE, STALE]
        assert state(sink, ORDERS) == expected(ORDERS, [order(2, at(2))])

    def test_a_key_may_come_back(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [delete(ORDERS, 1, at(5))])
        assert sink.apply(ORDERS, [order(1, at(6))]) == [APPLIED]
        assert sink.apply(ORDERS, [delete(ORDERS, 1, at(5))]) == [STALE]
        assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(6))])

    def test_truncate_keeps_what_is_newer(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        older, newer = [order(n, at(n)) for n in range(1, 31)], [order(n, at(n)) for n in range(101, 131)]
        sink.apply(ORDERS, [*older, *newer, delete(ORDERS, 50, at(50))])
        assert (sink.count(ORDERS), sink.count(ORDERS, at(100))) == (60, 30)
        assert sink.truncate(ORDERS, at(100)) == 30
        assert (sink.count(ORDERS), sink.count(ORDERS, at(100))) == (30, 0)
        assert state(sink, ORDERS) == expected(ORDERS, newer)
        assert sink.truncate(ORDERS, at(100)) == 0
        assert sink.apply(ORDERS, [order(1, at(1)), order(2, at(99)), order(3, at(101))]) == [
            STALE,
            STALE,
            APPLIED,
        ]
        assert state(sink, ORDERS) == expected(ORDERS, [*newer, order(3, at(101))])

    def test_truncate_keeps_a_row_stored_at_its_very_position(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(99)), order(2, at(100)), order(3, at(101))])
        assert sink.truncate(ORDERS, at(100)) == 1
        assert state(sink, ORDERS) == expected(ORDERS, [order(2, at(100)), order(3, at(101))])

    def test_what_a_truncate_removed_comes_back_at_its_very_position(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(5)), order(2, at(6))])
        assert sink.truncate(ORDERS, at(100)) == 2
        assert sink.apply(ORDERS, [order(1, at(100)), order(2, at(99))]) == [APPLIED, STALE]
        assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(100))])

    def test_truncate_keeps_rows_of_other_partitions(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        places = [at(n, epoch=1, partition=n % 3) for n in range(1, 31)]
        earlier = order(31, at(MAX_OFFSET, partition=2))
        rows = [order(n, place) for n, place in enumerate(places, 1)]
        sink.apply(ORDERS, [*rows, earlier])
        assert sink.count(ORDERS, at(20, epoch=1, partition=1)) == 7
        assert sink.truncate(ORDERS, at(20, epoch=1, partition=1)) == 7
        left = [row for row in rows if row.position.partition != 1 or row.position.offset >= 20]
        assert state(sink, ORDERS) == expected(ORDERS, [*left, earlier])
        assert sink.apply(ORDERS, [rows[0], order(1, at(21, epoch=1, partition=1))]) == [STALE, APPLIED]
        assert sink.truncate(ORDERS, at(20, epoch=1)) == 7, "with the first partition goes an earlier life"
        # Under another number of partitions the same row is somewhere else.
        assert sink.apply(ORDERS, [order(31, at(0, epoch=1, partition=2))]) == [APPLIED]

    # ------------------------------------------------------------ partial images

    def test_an_absent_column_keeps_its_value(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(
            ORDERS,
            [order(1, at(1), note="kept"), order(2, at(2), note=None), order(3, at(3), note="kept too")],
        )
        batch = [
            order(1, at(4), item="jug", absent=["note"]),
            order(2, at(5), item="jug", absent=["note", "price"]),
            order(4, at(6)),
        ]
        assert sink.apply(ORDERS, batch) == [APPLIED] * 3
        merged = [
            order(1, at(4), "jug", "kept"),
            order(2, at(5), "jug", None),
            order(3, at(3), note="kept too"),
            batch[2],
        ]
        assert state(sink, ORDERS) == expected(ORDERS, merged)
        assert sink.apply(ORDERS, batch) == [APPLIED] * 3
        assert state(sink, ORDERS) == expected(ORDERS, merged)

    def test_a_null_is_not_an_absent_column(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(1), item="cup", note="kept")])
        row = {"id": 1, "item": None, "price": None, "note": "kept"}
        assert sink.apply(ORDERS, [upsert(ORDERS, row, at(2), absent=["note"])]) == [APPLIED]
        assert state(sink, ORDERS) == expected(ORDERS, [upsert(ORDERS, row, at(2))])

    def test_a_stale_partial_changes_nothing(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(5)), delete(ORDERS, 2, at(6))])
        stale = [order(1, at(4), item="old", absent=["note"]), order(2, at(5), item="old", absent=["note"])]
        assert sink.apply(ORDERS, stale) == [STALE, STALE]
        assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(5))])

    def test_a_partial_is_never_half_filled(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        sink.apply(ORDERS, [order(1, at(1)), order(2, at(2))])
        sink.apply(ORDERS, [delete(ORDERS, 1, at(3))])
        batch = [order(1, at(4), absent=["note"]), order(7, at(5), absent=["note"]), order(8, at(6))]
        assert sink.apply(ORDERS, batch) == [ROW_MISSING, ROW_MISSING, APPLIED]
        assert state(sink, ORDERS) == expected(ORDERS, [order(2, at(2)), order(8, at(6))])

    def test_the_stored_rows_of_keys_can_be_asked_for(self, sink: Sink) -> None:
        sink.prepare(ORDERS)
        live, dead, absent = order(1, at(1), note="kept"), order(2, at(2)), order(9, at(9))
        sink.apply(ORDERS, [live, dead])
        sink.apply(ORDERS, [delete(ORDERS, 2, at(3))])
        found = sink.rows(ORDERS, [live.key, dead.key, absent.key])
        assert {
            key: (canonical_row(ORDERS, row.row), row.key, row.version) for key, row in found.items()
        } == {live.key: (canonical_row(ORDERS, live.row), live.key.id, live.position.version)}
