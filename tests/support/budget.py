"""As many of the long tests as fit into so many minutes: other files each time, and those left out are named.

``pytest --minutes 35`` runs the proofs of :data:`FIRST`, then the other files in an order of a seed that is
printed. When the time is over no further file begins. ``--order SEED`` repeats an order.
"""

from __future__ import annotations

import random
import time

import pytest

__all__ = [
    "FIRST",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_report_header",
    "pytest_runtestloop",
    "pytest_terminal_summary",
]

FIRST = ("test_kill_engine.py", "test_two_engines.py", "test_kill_servers.py")
"""That a killed engine or server loses nothing, and that one engine writes, is shown in each run."""

_DEADLINE = pytest.StashKey[float]()
_SEED = pytest.StashKey[int]()
_LEFT = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, help="begin no further file after so many minutes")
    parser.addoption("--order", type=int, help="seed of the order of files, with --minutes")


def pytest_configure(config: pytest.Config) -> None:
    if (minutes := config.getoption("--minutes")) is not None:
        config.stash[_DEADLINE] = time.monotonic() + 60 * minutes
        seed = config.getoption("--order")
        config.stash[_SEED] = random.SystemRandom().randrange(2**24) if seed is None else seed


def pytest_report_header(config: pytest.Config) -> str:
    if _SEED not in config.stash:
        return ""
    return f"as many files as fit: --minutes {config.getoption('--minutes')} --order {config.stash[_SEED]}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _SEED not in config.stash:
        return
    files = sorted({item.path for item in items})
    random.Random(config.stash[_SEED]).shuffle(files)
    files.sort(key=lambda path: FIRST.index(path.name) if path.name in FIRST else len(FIRST))
    places = {path: place for place, path in enumerate(files)}
    items.sort(key=lambda item: places[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    config = session.config
    if _DEADLINE not in config.stash or config.option.collectonly or session.testsfailed:
        return None
    items = session.items
    for number, item in enumerate(items):
        begins = number == 0 or items[number - 1].path != item.path
        if begins and number and time.monotonic() > config.stash[_DEADLINE]:
            left = items[number:]
            config.hook.pytest_deselected(items=left)
            config.stash[_LEFT] = [each.path.name for each in left]
            break
        following = items[number + 1] if number + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = config.stash.get(_LEFT, [])
    if left:
        names = ", ".join(dict.fromkeys(left))
        terminalreporter.write_line(f"{len(left)} tests did not fit into the time and were not run: {names}")
