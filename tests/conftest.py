"""Fixtures for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stack import RunningStack, running_stack


@pytest.fixture(scope="session")
def stack() -> Iterator[RunningStack]:
    """Return the one complete stack that tests share; leave it running and its servers' data tidy."""
    with running_stack() as running:
        yield running
