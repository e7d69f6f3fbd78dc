"""Ports of one stack: picked once, kept for ever, because registered sources and sinks name them."""

from __future__ import annotations

import errno
import json
import random
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from headrace.local.cache import write_atomically
from headrace.model.errors import EnvironmentError_

__all__ = ["HOST", "PORT_NAMES", "check_free", "holder", "is_free", "load_or_pick", "load_ports"]

HOST = "127.0.0.1"
PORT_NAMES = (
    "postgres",
    "kafka",
    "kafka_controller",
    "connect",
    "elasticsearch",
    "elasticsearch_transport",
    "redis",
)

# Below the range from which systems take the near end of outgoing connections: a port from there could be in
# use by any client at the next start.
_LOWEST, _HIGHEST = 20_000, 32_000


def is_free(port: int) -> bool:
    """Say whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
        return True


def _pick(count: int) -> list[int]:
    # Random, so that two stacks made at the same moment do not pick alike.
    chosen: list[int] = []
    for port in random.sample(range(_LOWEST, _HIGHEST), _HIGHEST - _LOWEST):
        if is_free(port):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise EnvironmentError_(
        f"There are no {count} free ports between {_LOWEST} and {_HIGHEST} on {HOST}.",
        code="STACK_NO_PORTS",
        hint="Stop programs that listen there.",
    )


def load_ports(path: Path) -> dict[str, int] | None:
    """Return the ports kept in a file, or None if it is missing or incomplete."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: int(content[name]) for name in PORT_NAMES}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def load_or_pick(path: Path) -> dict[str, int]:
    """Return the ports kept in a file; the first time pick free ones and keep them there."""
    kept = load_ports(path)
    if kept is not None:
        return kept
    picked = dict(zip(PORT_NAMES, _pick(len(PORT_NAMES)), strict=True))
    write_atomically(path, json.dumps(picked, indent=2).encode(), mode=0o600)
    return picked


def holder(port: int) -> str | None:
    """Name the process that listens on a port; None if no such process can be seen by this user."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status != psutil.CONN_LISTEN or tuple(connection.laddr)[1:] != (port,):
                continue
            if connection.pid is None:
                break
            return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return None


def check_free(server: str, ports: Mapping[str, int], kept_in: Path, *, patience: float = 5.0) -> None:
    """See that nobody else listens on a server's ports before it starts.

    A killed process of many threads counts as gone before the last of them lets its sockets go; a port whose
    holder cannot be found is therefore given ``patience`` seconds to become free.

    Raises:
        EnvironmentError_: ``STACK_PORT_TAKEN`` with the holder's name.
    """
    deadline = time.monotonic() + patience
    for name, port in ports.items():
        while not is_free(port):
            found = holder(port)
            if found is None and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise EnvironmentError_(
                f"{server} cannot start: {found or 'another process'} listens on its port {port} ({name}).",
                code="STACK_PORT_TAKEN",
                hint=(
                    f"Stop that process. Or run `headrace down`, delete {kept_in} and run `headrace up` for "
                    "new ports; sources and sinks that name the old ones must then be added again."
                ),
            )
