"""A worker that is busy for a moment is asked again; one that is broken is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from headrace.control.connect import Connect
from headrace.model.errors import StackError

ANSWERS: list[str] = []
"""What Connect says, in its own words, before it answers."""


@pytest.fixture
def worker() -> Iterator[str]:
    class Worker(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

        def do_GET(self) -> None:
            said = ANSWERS.pop(0) if ANSWERS else ""
            body = json.dumps({"error_code": 500, "message": said} if said else {"name": "x"}).encode()
            self.send_response(500 if said else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Worker)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()
    ANSWERS.clear()


@pytest.mark.parametrize(
    "said",
    ["Request cannot be completed because a rebalance is expected", "Request timed out. The worker is busy"],
)
def test_what_passes_is_waited_out(worker: str, said: str) -> None:
    ANSWERS.extend([said, said])
    with Connect(worker) as connect:
        assert connect.config("x") == {"name": "x"}


def test_what_does_not_pass_is_told(worker: str) -> None:
    ANSWERS.append("The offsets cannot be read")
    with Connect(worker) as connect, pytest.raises(StackError) as caught:
        connect.config("x")
    assert caught.value.code == "CONNECT_TROUBLED"
