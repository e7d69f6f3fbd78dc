"""A Maven repository on loopback that serves what this machine's cache holds, and misbehaves on request."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from headrace.local.artefacts import locked, resolve

__all__ = ["Repository", "repository"]


@dataclass(slots=True)
class Repository:
    """What the repository serves and was asked for.

    Attributes:
        files: Content's place by path.
        url: Its root.
        fetched: Paths of the files it has served, in order.
        cut: Serve only this many bytes of every file, as if that were all.
        login: ``user:password`` to ask for, or empty.
    """

    files: dict[str, Path]
    url: str = ""
    fetched: list[str] = field(default_factory=list)
    cut: int | None = None
    login: str = ""


@contextmanager
def repository(*groups: str) -> Iterator[Repository]:
    """Serve the artefacts of some groups; fills the machine's own cache with them first."""
    found = resolve(groups)
    paths = {path.name: path for group in found.values() for path in group}
    files = {}
    for item in locked(groups):
        c = item.coordinate
        files[f"/{c.organisation.replace('.', '/')}/{c.name}/{c.version}/{c.filename}"] = paths[c.filename]
    served = Repository(files)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, *, body: bool) -> None:
            if served.login:
                wanted = f"Basic {base64.b64encode(served.login.encode()).decode()}"
                if self.headers.get("authorization") != wanted:
                    self.send_response(401)
                    self.send_header("www-authenticate", 'Basic realm="The Repository"')
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
            path = served.files.get(self.path)
            if path is None:
                self.send_error(404)
                return
            content = path.read_bytes()[: served.cut]
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if body:
                served.fetched.append(self.path)
                self.wfile.write(content)

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_port}/m2"
        served.files = {f"/m2{path}": file for path, file in files.items()}
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()
