"""How a batch's ranges are shared out among tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.task_apply import shared_out

places = st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3))
limits = st.tuples(st.integers(0, 1_000), st.integers(1, 1_000)).map(lambda pair: (pair[0], sum(pair)))


@given(st.dictionaries(places, limits, min_size=1), st.integers(1, 5))
def test_every_range_is_in_one_share_and_no_task_has_most_of_the_work(
    ranges: dict[tuple[str, int], tuple[int, int]], most: int
) -> None:
    shares = shared_out(ranges, most)
    assert 1 <= len(shares) <= most
    assert all(shares)
    assert dict(item for share in shares for item in share.items()) == ranges
    assert sum(map(len, shares)) == len(ranges)
    sizes = [sum(end - begin for begin, end in share.values()) for share in shares]
    largest = max(end - begin for begin, end in ranges.values())
    assert max(sizes) - min(sizes) <= largest
