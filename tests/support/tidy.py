"""No file of tests leaves a source behind in a stack that others share: it would make them fail."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from headrace.control.registry import Registry
from tests.support.stack import HOMES

__all__ = ["pytest_runtest_teardown"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    yield
    if nextitem is not None and nextitem.path == item.path:
        return
    for home in HOMES:
        registry = home.root / "registry.db"
        if registry.exists():
            left = [entry.name for entry in Registry(registry).sources()]
            assert not left, f"{item.path.name} leaves behind: {', '.join(left)}"
