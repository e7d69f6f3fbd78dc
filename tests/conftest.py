"""Fixtures for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from headrace.cli.context import open_context
from headrace.control.context import Context
from tests.support.stack import RunningStack, found_stack, running_stack

__all__ = ["context", "stack"]

pytest_plugins = [
    "tests.support.patience",  # first, for others import it
    "tests.support.budget",
    "tests.support.foretold",
    "tests.support.honest",
    "tests.support.postmortem",
    "tests.support.repeats",
    "tests.support.tally",
]

# How long an example takes says more of the machine than of the code.
settings.register_profile("default", deadline=None)
settings.register_profile("deep", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HEADRACE_TEST_PROFILE", "default"))

# What a training gains comes too late for one run of the tests, and it would take their processor time.
os.environ.setdefault("HEADRACE_TRAINING", "off")


@pytest.fixture(scope="session")
def stack() -> Iterator[RunningStack]:
    """Return the one complete stack that tests share; leave it running and its servers' data tidy.

    Where ``HEADRACE_TEST_STACK`` names the home of one that runs, that is used and left running.
    """
    with found_stack() or running_stack() as running:
        yield running


@pytest.fixture(scope="session")
def context(stack: RunningStack) -> Iterator[Context]:
    """Return the control plane of the stack that tests share; what the engine wrote was whole to it."""
    made = open_context(stack.home.root)
    yield made
    assert not list(made.checkpoints.glob(".*.damaged-*")), "a checkpoint that nobody damaged was put aside"
