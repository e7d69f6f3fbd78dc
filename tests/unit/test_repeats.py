"""A repeated test ends, too, when it hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

_TWICE = """
import time
import pytest

tries = []

@pytest.mark.stack
@pytest.mark.timeout(1)
def test_it():
    tries.append(1)
    {first} if len(tries) == 1 else {second}
"""
_SHORT, _LONG = "time.sleep(0.1)", "time.sleep(20)"


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (_LONG, _SHORT, {"passed": 1, "rerun": 1}),
        (_LONG, _LONG, {"failed": 1, "rerun": 1}),
    ],
    ids=["hangs, then passes", "hangs twice"],
)
def test_a_repeat_has_a_time_limit_of_its_own(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, first: str, second: str, told: dict[str, int]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makeini("[pytest]\nmarkers = stack: on real servers")
    pytester.makepyfile(_TWICE.format(first=first, second=second))
    done = pytester.runpytest_subprocess("-p", "tests.support.repeats")
    outcomes = done.parseoutcomes()
    assert {name: outcomes.get(name, 0) for name in told} == told
