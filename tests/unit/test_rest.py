"""How long a query rests between two batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.rest import rest_after

_SECONDS = st.floats(0, 10)


def test_a_busy_lake_commits_once_a_second() -> None:
    assert rest_after(200, 0.3, pace=1.0) == 0.7
    assert rest_after(200, 0.6, pace=1.0) == 0.5  # longer than the pace leaves: as any busy sink
    assert rest_after(200, 2.0, pace=1.0) == 0.5


def test_a_lake_that_is_done_at_once_hardly_waits() -> None:
    assert rest_after(200, 0.03, pace=1.0) == 0.12
    assert rest_after(200, 0.0, pace=1.0) == 0.0


@given(st.integers(0, 50), _SECONDS, _SECONDS)
def test_few_changes_know_no_rest(records: int, took: float, pace: float) -> None:
    assert rest_after(records, took, pace) == 0.0


def test_a_sink_without_a_pace_rests_only_where_much_comes_in_and_takes_long() -> None:
    assert rest_after(200, 0.3, pace=0.0) == 0.3
    assert rest_after(200, 0.2, pace=0.0) == 0.0
    assert rest_after(50, 0.3, pace=0.0) == 0.0


@given(st.integers(0, 10_000), _SECONDS, _SECONDS)
def test_no_rest_is_longer_than_the_pace_or_half_a_second(records: int, took: float, pace: float) -> None:
    assert 0.0 <= rest_after(records, took, pace) <= max(pace, 0.5)


@given(st.integers(2_001, 10**6), _SECONDS, _SECONDS)
def test_a_backlog_knows_no_rest(records: int, took: float, pace: float) -> None:
    assert rest_after(records, took, pace) == 0.0
