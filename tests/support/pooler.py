"""A pooler before a real server that answers as PgBouncer does; clients come in without a password."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Lock, Thread
from urllib.parse import urlsplit, urlunsplit

from tests.support.patience import WAIT_S
from tests.support.wire import ended

__all__ = ["REFUSES", "pooler"]

REFUSES = b"unsupported startup parameter: options"
"""What PgBouncer says of settings that a session is to begin with, unless it is told to ignore them."""
_PLAIN = 196_608
_NO_TLS = (80_877_103, 80_877_104)
_PROCESS = 1_234_567_890
_Message = tuple[bytes, bytes]


def _exactly(wire: socket.socket, count: int) -> bytes:
    told = b""
    while len(told) < count:
        if not (part := wire.recv(count - len(told))):
            raise ConnectionError
        told += part
    return told


def _framed(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


def _message(wire: socket.socket) -> _Message:
    kind = _exactly(wire, 1)
    (length,) = struct.unpack("!i", _exactly(wire, 4))
    return kind, _exactly(wire, length - 4)


def _startup(client: socket.socket) -> dict[bytes, bytes]:
    """Return what a client begins its session with; a wish for TLS is declined."""
    while True:
        (length,) = struct.unpack("!i", _exactly(client, 4))
        content = _exactly(client, length - 4)
        if struct.unpack("!i", content[:4])[0] not in _NO_TLS:
            words = content[4:].rstrip(b"\0").split(b"\0")
            return dict(zip(words[::2], words[1::2], strict=True))
        client.sendall(b"N")


class _Pooler:
    """Lends one session of the server to each transaction of any client, unless each is to have its own."""

    def __init__(self, server: tuple[str, int], *, takes_options: bool, one_each: bool) -> None:
        self._at, self._takes_options, self._one_each = server, takes_options, one_each
        self._lock, self._stack = Lock(), ExitStack()
        self._lent: tuple[socket.socket, list[_Message]] | None = None
        self.listening = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))

    def serve(self) -> None:
        """Take clients until it is closed."""
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            Thread(target=self._client, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Take no more clients, and end the session that is lent."""
        ended(self.listening)
        self._stack.close()

    def _client(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            wanted = _startup(client)
            if b"options" in wanted and not self._takes_options:
                told = b"SFATAL\0VFATAL\0C08P01\0M" + REFUSES + b"\0\0"
                client.sendall(_framed(b"E", told))
                return
            with self._lock:
                server, begun = self._server(wanted)
            for kind, content in begun:
                key = struct.pack("!i", _PROCESS) + content[4:]
                client.sendall(_framed(kind, key if kind == b"K" else content))
            self._pass_on(client, server)

    def _server(self, wanted: dict[bytes, bytes]) -> tuple[socket.socket, list[_Message]]:
        """Return a session of the server, and what the server said when it began."""
        if self._lent is not None and not self._one_each:
            return self._lent
        told = wanted if self._one_each else {k: v for k, v in wanted.items() if k != b"options"}
        server = self._stack.enter_context(socket.create_connection(self._at, WAIT_S))
        words = b"\0".join(word for pair in told.items() for word in pair)
        server.sendall(_framed(b"", struct.pack("!i", _PLAIN) + words + b"\0\0"))
        begun = [_message(server)]
        while begun[-1][0] not in (b"Z", b"E"):
            begun.append(_message(server))
        self._lent = server, begun
        return self._lent

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        while (asked := _message(client))[0] != b"X":
            with self._lock:
                state = self._answered(client, server, asked)
                while state != b"I":
                    state = self._answered(client, server, _message(client))

    def _answered(self, client: socket.socket, server: socket.socket, asked: _Message) -> bytes:
        """Pass on one question with its answer; return in which state the server's session is then."""
        server.sendall(_framed(*asked))
        while asked[0] not in (b"Q", b"S"):
            asked = _message(client)
            server.sendall(_framed(*asked))
        while True:
            kind, content = _message(server)
            client.sendall(_framed(kind, content))
            if kind == b"Z":
                return content


@contextmanager
def pooler(dsn: str, *, takes_options: bool = False, one_each: bool = False) -> Iterator[str]:
    """Yield the URL of a way to the server through a pooler.

    Args:
        dsn: The server's URL.
        takes_options: A client may name settings that its session begins with; they are ignored.
        one_each: Each client has its own session of the server, begun as the client wants it.
    """
    parts = urlsplit(dsn)
    opened = _Pooler(
        (parts.hostname or "", parts.port or 5432), takes_options=takes_options or one_each, one_each=one_each
    )
    thread = Thread(target=opened.serve, daemon=True)
    thread.start()
    port = opened.listening.getsockname()[1]
    try:
        yield urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))
    finally:
        opened.close()
        thread.join(WAIT_S)
