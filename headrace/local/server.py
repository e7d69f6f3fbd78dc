"""What every server of the stack is to the code that starts, watches and stops it."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headrace.local.account import Account
from headrace.local.aot import AotCache
from headrace.local.credentials import Credentials
from headrace.local.home import Home

__all__ = ["Launch", "Server", "Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """What a server is told about the stack it belongs to.

    Attributes:
        home: The stack's directory.
        ports: Port by name, see ``ports.PORT_NAMES``.
        files: Paths of the artefacts of the server's groups.
        credentials: The servers' passwords.
        account: Who runs what refuses root; None if this user can.
        training: Whether Java servers are started to write their ahead-of-time caches.
    """

    home: Home
    ports: Mapping[str, int]
    files: Mapping[str, Sequence[Path]]
    credentials: Credentials
    account: Account | None
    training: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server's process.

    Attributes:
        command: Program and arguments.
        env: Variables beside those of :func:`headrace.local.account.surroundings`.
        account: Whom to run as; None for this user.
        aot: The cache that makes its JVM start faster; None for what is no JVM, or one that has none.
    """

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None
    aot: AotCache | None = None


class Server(Protocol):
    """One real server. Everything it knows about starting comes from its :class:`Site`."""

    @property
    def name(self) -> str:
        """Short name: of its log, its pid file, its data directory and its first port."""

    @property
    def version(self) -> str:
        """Version, as its vendor writes it."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of artefacts it is made of."""

    @property
    def ports(self) -> tuple[str, ...]:
        """Names of the ports it listens on, the one for clients first."""

    @property
    def logs_itself(self) -> bool:
        """Whether it writes ``home.log(name)`` itself; else its standard output goes there."""

    @property
    def stop_signal(self) -> signal.Signals:
        """The signal that makes it end in order and soon."""

    def prepare(self, site: Site) -> Launch:
        """Write configuration, make or repair the data directory; nothing of this server runs now."""

    def probe(self, site: Site) -> None:
        """Return if the server answers in its own protocol; else raise any exception, within seconds."""
