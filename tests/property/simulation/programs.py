"""How programs of a machine are chosen: always the same ones in `make test`, others each time elsewhere."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

__all__ = ["DEEP", "fixed", "fresh_seed", "run", "run_fresh"]

DEEP = settings.get_current_profile_name() == "deep"
"""Whether this is a round of `make test-deep`, which gives the seed."""


def fresh_seed(capsys: pytest.CaptureFixture[str]) -> int:
    """Return ``HEADRACE_TEST_SEED``, or a number that nobody has chosen; print it, also when all passes."""
    number = int(os.environ.get("HEADRACE_TEST_SEED", random.randrange(2**31)))
    with capsys.disabled():
        print(f"\nHEADRACE_TEST_SEED={number}")
    return number


def fixed(programs: int, steps: int) -> settings:
    """Return the settings for the same programs every time."""
    return settings(max_examples=programs, stateful_step_count=steps, derandomize=True, database=None)


def run(machine: type[RuleBasedStateMachine], programs: int, steps: int, *, same: bool) -> None:
    """Run programs, the ``same`` ones every time or others; of others one that fails is made smaller."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=programs,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=same,
            phases=[Phase.generate, *([] if same else [Phase.shrink])],
            suppress_health_check=list(HealthCheck),
        ),
    )


def run_fresh(machine: type[RuleBasedStateMachine], programs: int, steps: int, number: int) -> None:
    """Run programs that a seed stands for."""
    fresh = type(machine.__name__, (machine,), {})  # what is seeded stays so
    run(seed(number)(fresh), programs, steps, same=False)
