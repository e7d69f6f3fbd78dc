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
