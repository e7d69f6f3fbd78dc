"""A test on real servers may be repeated once; many repeats in one run fail it.

A repeat is not a remedy: the summary shows each failure, and its cause is to be found.
"""

from __future__ import annotations

import pytest

__all__ = ["MOST", "pytest_collection_modifyitems", "pytest_configure"]

MOST = 3
"""So many repeats in one run are let pass."""

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
