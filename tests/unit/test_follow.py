"""Followers are started again, and how soon."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace.control import follow
from headrace.control.follow import Follower


class Ended:
    """A process that has ended."""

    def __init__(self, code: int) -> None:
        self._code = code

    def poll(self) -> int:
        return self._code


@pytest.mark.parametrize(
    ("code", "pauses"),
    [
        (0, [10, 10, 10, 10, 10, 10, 10, 10]),
        (1, [10, 20, 40, 60, 60, 60, 60, 60]),
        (follow._REFUSED, [10, 20, 40, 80, 160, 320, 600, 600]),
    ],
)
def test_one_that_a_server_or_a_busy_sink_refused_is_tried_within_a_minute(
    monkeypatch: pytest.MonkeyPatch, code: int, pauses: list[int]
) -> None:
    clock = 1_000.0
    begun: list[float] = []

    def begin(*_: Any, **__: Any) -> Ended:
        begun.append(clock)
        return Ended(code)

    monkeypatch.setattr(subprocess, "Popen", begin)
    monkeypatch.setattr("time.monotonic", lambda: clock)
    follower = Follower(Path("context"), Path("engine"))
    while len(begun) < len(pauses) + 1:
        follower._tick({"shop": ["search"]})
        clock += 1
    # One look sees that it has ended, the next that its pause is over.
    assert [round(b - a) - 1 for a, b in pairwise(begun)] == pauses
