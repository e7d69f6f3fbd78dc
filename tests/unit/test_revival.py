"""When a connector that gave up is started again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headrace.control.connect import ConnectorState
from headrace.control.revival import Revival

FAILED = ConnectorState("RUNNING", "FAILED", "refused")
RUNS = ConnectorState("RUNNING", "RUNNING", "")
RESTS = ConnectorState("PAUSED", "PAUSED", "")


class Looks:
    def __init__(self) -> None:
        self.now = 0.0
        self.revival = Revival(lambda: self.now)

    def at(self, state: ConnectorState, seconds: int, *, loading: bool = False) -> list[float]:
        """Look once a second; return after how many seconds it was started again."""
        began, times = self.now, []
        for _ in range(seconds):
            self.now += 1.0
            if self.revival.is_due(state, loading=loading):
                times.append(self.now - began)
        return times


def test_it_is_started_again_ever_more_rarely() -> None:
    times = Looks().at(FAILED, 2_000)
    assert times[0] == 6
    assert [b - a for a, b in pairwise(times)] == [10, 20, 40, 80, 160, 300, 300, 300, 300, 300]


def test_one_that_runs_or_rests_is_left_alone() -> None:
    looks = Looks()
    assert looks.at(RUNS, 100) == looks.at(RESTS, 100) == []


def test_one_that_ran_for_a_while_is_started_again_soon() -> None:
    looks = Looks()
    looks.at(FAILED, 100)
    looks.at(RUNS, 302)
    assert looks.at(FAILED, 10) == [6]


@pytest.mark.parametrize("ran", [3, 60])
def test_one_that_fails_soon_after_each_start_waits_longer_each_time(ran: int) -> None:
    looks, waited = Looks(), []
    for _ in range(8):
        (after,) = looks.at(FAILED, 302)[:1]
        waited.append(after)
        looks.at(RUNS, ran)
    assert waited[0] == 6
    assert waited[1:] == sorted(waited[1:])
    assert waited[-1] > 100


def test_a_load_that_fails_after_hours_is_not_begun_again_for_ever() -> None:
    looks, times = Looks(), 0
    for _ in range(10):
        looks.at(RUNS, 4_000, loading=True)
        times += len(looks.at(FAILED, 400, loading=True))
    assert times == 3
    looks.at(RUNS, 400)
    assert looks.at(FAILED, 10)
