"""One small shop, equal in all three sinks, that every test of this folder hurts and heals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.shop import Shop, open_shop
from tests.support.stack import RunningStack


@pytest.fixture(scope="package")
def shop(stack: RunningStack) -> Iterator[Shop]:
    with open_shop(stack, "faults") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _honest(request: pytest.FixtureRequest) -> None:
    """Have each test of this folder watched, see :mod:`tests.support.honest`."""
    if request.node.get_closest_marker("unlooked") is None:
        request.getfixturevalue("honest")
