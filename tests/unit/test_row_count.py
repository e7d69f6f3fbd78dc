"""Which transactions a count of rows includes, by the numbers that records tell."""

from __future__ import annotations

import pytest

from connectors.row_count import RowCount

AGAIN = 1 << 32


@pytest.mark.parametrize("epoch", [0, AGAIN, 7 * AGAIN])
def test_a_count_has_seen_what_had_ended_before_it(epoch: int) -> None:
    count = RowCount(3, 100 + epoch, 110 + epoch, frozenset({100 + epoch, 104 + epoch}))
    assert [number for number in range(95, 115) if count.saw(number)] == [
        *range(95, 100), *range(101, 104), *range(105, 110)
    ]  # fmt: skip


def test_numbers_that_begin_anew_between_a_record_and_a_count_are_told_apart() -> None:
    count = RowCount(3, AGAIN + 2, AGAIN + 5, frozenset({AGAIN + 3}))
    assert count.saw(AGAIN - 1), "of before"
    assert [count.saw(number) for number in range(7)] == [True, True, True, False, True, False, False]
    late = RowCount(3, AGAIN - 2, AGAIN - 1, frozenset())
    assert not late.saw(3), "of after, though its number is lower"
