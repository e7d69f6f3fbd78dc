"""How long tests wait: ``HEADRACE_TEST_PATIENCE=3`` waits three times as long as on a quiet machine."""

from __future__ import annotations

import os

import pytest

__all__ = ["LEAST_S", "PATIENCE", "WAIT_S", "pytest_collection_modifyitems"]

PATIENCE = float(os.environ.get("HEADRACE_TEST_PATIENCE", "1"))
LEAST_S = 150.0
"""Every wait lasts at least so many seconds: longer than a driver takes to come back on a loaded machine."""
WAIT_S = LEAST_S * PATIENCE
"""For what takes its own limit: a future, a process, a server that is asked."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let a test take longer as well."""
    if PATIENCE == 1:
        return
    for item in items:
        mark = item.get_closest_marker("timeout")
        seconds = mark.args[0] if mark else float(config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(seconds * PATIENCE), append=False)
