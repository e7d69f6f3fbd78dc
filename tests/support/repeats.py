"""A test on real servers may be repeated once; many repeats in one run fail it.

A repeat is not a remedy: the summary shows each failure, and its cause is to be found.
"""

from __future__ import annotations

from typing import Any

import pytest

__all__ = [
    "MOST",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_runtest_setup",
    "pytest_timeout_set_timer",
]

MOST = 3
"""So many repeats in one run are let pass."""

_TIMEOUT = pytest.StashKey[Any]()

_MOST = 6_000
"""So many characters are shown of a first failure, and of each of what was told beside it."""


class _Count:
    def __init__(self) -> None:
        self.repeats: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if str(report.outcome) == "rerun":
            told = "\n".join(f"--- {name}\n{text[-_MOST:]}" for name, text in report.sections)
            self.repeats.append((report.nodeid, f"{report.longreprtext[-_MOST:]}\n{told}"))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if len(self.repeats) > MOST and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, failure in self.repeats:
            terminalreporter.write_sep("-", f"repeated once: {name}")
            terminalreporter.write_line(failure)
        if len(self.repeats) > MOST:
            terminalreporter.write_line(
                f"{len(self.repeats)} repeats are more than {MOST}: the run has failed"
            )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Count(), "repeats")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("stack"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    item.stash[_TIMEOUT] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a repeat as much time as the first run had, whose failure has ended the limit."""
    if getattr(item, "execution_count", 1) > 1 and _TIMEOUT in item.stash:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[_TIMEOUT])
