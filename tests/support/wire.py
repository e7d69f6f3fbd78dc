"""A TCP connection to a real server that breaks, or tells other answers, where a test says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread

from tests.support.patience import WAIT_S

__all__ = ["Wire", "ended", "wire"]

_CHUNK = 1 << 16


class Wire:
    """Passes bytes on, until it is told to break.

    Args:
        host: Of the server.
        port: Of the server.
        at: The address at which it listens.
    """

    def __init__(self, host: str, port: int, at: str = "127.0.0.1") -> None:
        self._server = (host, port)
        family = socket.AF_INET6 if ":" in at else socket.AF_INET
        self._listening = socket.create_server((at, 0), family=family)
        self._lock = Lock()
        self._mark = b""
        self._upto: int | None = None
        self._times = 0
        self._altered: tuple[bytes, bytes] | None = None
        self.broken = 0
        self.connections = 0
        self.far_s = 0.0
        """How long each connection takes."""

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listening.getsockname()[1])

    def lead_to(self, host: str, port: int) -> None:
        """Lead to another server from now on; connections that are open stay with theirs."""
        self._server = (host, port)

    def break_at(self, mark: bytes, upto: int | None, times: int = 1) -> None:
        """Break the next requests that have ``mark`` in them.

        Args:
            mark: What such a request begins with, more or less.
            upto: How many bytes of it arrive; None lets it arrive whole and loses the answer.
            times: How many requests.
        """
        with self._lock:
            self._mark, self._upto, self._times = mark, upto, times

    def alter(self, told: bytes, other: bytes) -> None:
        """Have every answer say ``other`` where the server says ``told``; both are equally long."""
        assert len(told) == len(other)
        self._altered = (told, other)

    def serve(self) -> None:
        """Take connections until it is closed."""
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            Event().wait(self.far_s)
            server = socket.create_connection(self._server, timeout=60)
            lost: list[bool] = []  # whether the next answer of this connection is to be lost
            for work in (self._requests, self._answers):
                Thread(target=work, args=(client, server, lost), daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        ended(self._listening)  # merely closed, it would go on waiting for a connection

    def _breaks(self, data: bytes) -> bool:
        with self._lock:
            if not self._times or self._mark not in data:
                return False
            self._times -= 1
            self.broken += 1
            return True

    def _requests(self, client: socket.socket, server: socket.socket, lost: list[bool]) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK):
                if self._breaks(data):
                    if self._upto is not None:
                        server.sendall(data[: self._upto])
                        break
                    lost.append(True)
                server.sendall(data)
        ended(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, lost: list[bool]) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK):
                if lost:
                    break
                client.sendall(data.replace(*self._altered) if self._altered else data)
        ended(client, server)


def ended(*both: socket.socket) -> None:
    """End connections, or what waits for them; whoever reads from one is told."""
    for one in both:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextmanager
def wire(host: str, port: int, at: str = "127.0.0.1") -> Iterator[Wire]:
    """Yield a way to a server that can be broken; it begins at an address of this machine."""
    opened = Wire(host, port, at)
    thread = Thread(target=opened.serve, daemon=True)
    thread.start()
    try:
        yield opened
    finally:
        opened.close()
        thread.join(WAIT_S)
