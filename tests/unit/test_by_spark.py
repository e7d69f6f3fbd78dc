"""Ranges are cut by the bytes in them: in order, whole, and no piece of many records is too large."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.by_spark import cut

MOST = 100


@st.composite
def logs(draw: st.DrawFn) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Place → offset and size of each record in a range of twenty offsets; others are of commit markers."""
    places = draw(st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=4))
    sizes = st.integers(0, 150)
    record = st.dictionaries(st.integers(0, 19), sizes, max_size=20)
    return {place: sorted(draw(record).items()) for place in sorted(places)}


@given(logs())
def test_pieces_are_whole_in_order_and_bounded(log: dict[tuple[str, int], list[tuple[int, int]]]) -> None:
    told = [(*place, offset, size) for place, records in log.items() for offset, size in records]
    read: list[tuple[str, int, int]] = []
    at = dict.fromkeys(log, 0)
    for piece in cut(dict.fromkeys(log, (0, 20)), told, MOST):
        held = []
        for place, (begin, end) in piece.items():
            assert begin == at[place] < end
            at[place] = end
            held += [(*place, offset, size) for offset, size in log[place] if begin <= offset < end]
        assert len(held) <= 1 or sum(size for *_, size in held) <= MOST
        read += [(topic, partition, offset) for topic, partition, offset, _ in held]
    assert set(at.values()) == {20}
    assert read == [(topic, partition, offset) for topic, partition, offset, _ in told]
