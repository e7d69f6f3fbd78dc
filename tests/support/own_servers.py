"""Servers that a test starts by itself: ports that nobody takes, and logs that a failure shows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.local.ports import is_free

__all__ = ["LOGS", "free_port", "shown", "tail"]

LOGS: list[Path] = []
"""The logs of servers that run; :mod:`tests.support.postmortem` adds their ends to a failure's report."""

_PORTS = range(20_000, 32_000)
_LINES = 15
_MOST = 20_000


def free_port(*beside: int) -> int:
    """Return a port that is free, and so are those that lie so much higher.

    It is a random one, for other tests look for theirs at the same time, and lies below those from which
    systems take the near end of outgoing connections.
    """
    return next(
        port
        for port in random.sample(_PORTS, len(_PORTS))
        if all(is_free(port + above) for above in (0, *beside))
    )


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-_LINES:])[-_MOST:]


@contextmanager
def shown(log: Path) -> Iterator[None]:
    """Have the end of a log shown when a test fails that uses the server meanwhile."""
    LOGS.append(log)
    try:
        yield
    except BaseException:  # the log goes with its folder, before the failure is reported
        print(f"--- the end of {log.name}\n{tail(log)}")
        raise
    finally:
        LOGS.remove(log)
