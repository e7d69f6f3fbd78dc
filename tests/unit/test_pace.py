"""A run rests while the database is slow, and comes to its end all the same."""

from __future__ import annotations

from headrace.control.runs.pace import Pace, Strain
from headrace.model.errors import SourceError


def rests(took: list[float | None], limit: float = 1.0) -> list[bool]:
    """Return what is said at looks two seconds apart; a time of None is a database that is away."""
    now = -2.0

    def clock() -> float:
        nonlocal now
        now += 2.0
        return now

    answers = iter(took)

    def measure() -> float:
        answer = next(answers)
        if answer is None:
            raise SourceError("It is away.", code="SOURCE_UNREACHABLE")
        return answer

    strain = Strain(limit, measure, clock)
    said = []
    for _ in took:
        said.append(strain.look())
        assert bool(strain.reason) == said[-1]
    return said


def test_a_limit_of_rows_holds_from_the_first_chunk() -> None:
    now = 0.0
    pace = Pace(100, lambda: now)
    assert pace.ahead(0)
    now = 1.0
    assert not pace.ahead(99)
    assert pace.ahead(100)
    now = 2.0
    assert not pace.ahead(150)


def test_the_rows_that_were_read_before_a_limited_run_was_taken_up_do_not_count() -> None:
    now = 0.0
    pace = Pace(100, lambda: now)
    assert pace.ahead(5_000)
    now = 1.0
    assert not pace.ahead(5_050)


def test_without_a_limit_it_never_rests() -> None:
    assert not any(Pace(None, lambda: 0.0).ahead(rows) for rows in (0, 1_000_000))


def test_it_rests_while_an_answer_takes_long() -> None:
    assert rests([0.1, 2.0, 3.0, 0.2, 0.1]) == [False, True, True, False, False]


def test_a_database_that_stays_slow_is_read_from_now_and_then() -> None:
    said = rests([5.0] * 14)
    assert said[0]
    assert said.count(False) == 2


def test_a_database_that_is_away_is_not_waited_for_here() -> None:
    assert rests([2.0, None, None]) == [True, False, False]


def test_it_asks_now_and_then_only() -> None:
    asked: list[float] = []
    strain = Strain(1.0, lambda: asked.append(1.0) or 0.0, lambda: 100.0)  # type: ignore[func-returns-value]
    assert [strain.look() for _ in range(5)] == [False] * 5
    assert len(asked) == 1
