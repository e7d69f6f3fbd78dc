"""What is told while a stack starts, and what is known of it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["OnEvent", "ServerStatus", "StackEvent"]


@dataclass(frozen=True, slots=True)
class StackEvent:
    """One step of one server.

    Attributes:
        server: The server's name; ``artefacts`` while files are downloaded for all of them.
        state: ``resolving``, ``starting``, ``ready`` (started by us), ``running`` (did so already),
            ``failed`` or ``stopped``.
        seconds: Since this server's start began; for ``ready`` its boot time.
        detail: A few words for a person, or empty.
    """

    server: str
    state: str
    seconds: float
    detail: str = ""


OnEvent = Callable[[StackEvent], None]


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One process of a stack.

    Attributes:
        name: The server's name, or ``engine``.
        state: ``running``, ``unresponsive`` (lives, does not answer), ``died`` (was not stopped by us) or
            ``stopped``.
        pid: Of the process, if it lives.
        port: The one for clients; None for a process that has none.
        rss_mib: Resident memory with its children's, if it lives.
        version: As its vendor writes it; empty for ours.
        log: Its log file.
        uptime_seconds: Since its process began, if it lives.
    """

    name: str
    state: str
    pid: int | None
    port: int | None
    rss_mib: float | None
    version: str
    log: Path
    uptime_seconds: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**asdict(self), "log": str(self.log)}
