"""A gate before a real Elasticsearch: it lets in whom it knows, and refuses others in its words."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.support.patience import WAIT_S

__all__ = ["Gate", "gate"]

_PASSED_ON = ("accept", "content-type")
_REFUSED = {"error": {"type": "security_exception", "reason": "unable to authenticate"}, "status": 401}


class Gate:
    """Who is let in; nobody at first."""

    def __init__(self) -> None:
        self.url = ""
        self._known: set[str] = set()

    def admit_user(self, name: str, password: str) -> None:
        """Let in who says this user's password, and nobody else."""
        self._known = {"Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}

    def admit_key(self, key: str) -> None:
        """Let in who shows this API key, and nobody else."""
        self._known = {f"ApiKey {key}"}

    def admits(self, said: str | None) -> bool:
        """Return whether it lets in who says so."""
        return said in self._known


@contextmanager
def gate(url: str, certificate: tuple[Path, Path] | None = None) -> Iterator[Gate]:
    """Yield a gate before the server of this URL, which has the server's own user and password in it.

    With files of a ``certificate`` and its key the gate is reached by TLS.
    """
    made = Gate()
    parts = urlsplit(url)
    auth = httpx.BasicAuth(parts.username or "", parts.password or "")
    server = f"{parts.scheme}://{parts.hostname}:{parts.port}"
    with httpx.Client(base_url=server, auth=auth, timeout=60) as client:

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if not made.admits(self.headers.get("authorization")):
                    self._answer(401, {"content-type": "application/json"}, json.dumps(_REFUSED).encode())
                    return
                headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
                answer = client.request(self.command, self.path, content=body, headers=headers)
                kept = {
                    name: value
                    for name, value in answer.headers.items()
                    if name in ("content-type", "x-elastic-product")
                }
                self._answer(answer.status_code, kept, answer.content)

            def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        made.url = f"http://127.0.0.1:{listening.server_address[1]}"
        if certificate is not None:
            encryption = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            encryption.load_cert_chain(*certificate)
            listening.socket = encryption.wrap_socket(listening.socket, server_side=True)
            made.url = made.url.replace("http:", "https:")
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            listening.shutdown()
            listening.server_close()
            thread.join(WAIT_S)
