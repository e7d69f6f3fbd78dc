"""When the time of a run is over no further file begins, those left out are named, and it fails as ever."""

from __future__ import annotations

import pytest

from tests.support.budget import FIRST

pytest_plugins = ["pytester"]


def outcome(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    pytester.makepyfile(
        test_a="def test_one(): pass\ndef test_two(): pass",
        test_b="def test_three(): pass",
        **{FIRST[0].removesuffix(".py"): "def test_proof(): pass"},
    )
    return pytester.runpytest_inprocess("-p", "tests.support.budget", "-v", *options)


def test_when_the_time_is_over_the_file_ends_and_the_others_are_named(pytester: pytest.Pytester) -> None:
    done = outcome(pytester, "--minutes", "0")
    done.assert_outcomes(passed=1, deselected=3)
    done.stdout.fnmatch_lines([f"{FIRST[0]}::test_proof PASSED*", "3 tests did not fit*were not run: *"])
    assert done.ret == 0


def test_all_run_in_an_order_that_can_be_repeated(pytester: pytest.Pytester) -> None:
    def order(seed: int) -> list[str]:
        done = outcome(pytester, "--minutes", "5", "--order", str(seed))
        done.assert_outcomes(passed=4)
        return [line.split(" ")[0] for line in done.outlines if "PASSED" in line]

    assert order(1) == order(1)
    orders = {tuple(order(seed)) for seed in range(8)}
    assert len(orders) == 2
    assert all(each[0].startswith(FIRST[0]) for each in orders)


def test_a_failure_fails_the_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_bad="def test_it(): assert False")
    assert pytester.runpytest_inprocess("-p", "tests.support.budget", "--minutes", "5").ret == 1


def test_without_the_option_nothing_is_other_than_ever(pytester: pytest.Pytester) -> None:
    outcome(pytester).assert_outcomes(passed=4)
