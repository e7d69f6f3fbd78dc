"""No log of ours holds a password, not even in what a library tells."""

from __future__ import annotations

import subprocess
import sys
import threading
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, HTTPServer

_LOGS = """
import logging
from headrace.config.logs import begin_log
from headrace.control.connect import Connect
from headrace.model.errors import StackError

begin_log(logging.INFO)
log = logging.getLogger("headrace")
log.info("said")
log.error("refused: http://me:canary-1@host/")
logging.getLogger("httpx").info("GET http://me:canary-2@host/")
try:
    raise ValueError("redis://me:canary-3@host/")
except ValueError:
    log.exception("failed")
try:
    Connect("http://me:canary-4@127.0.0.1:1", patience=0.1).state("x")
except StackError:
    log.exception("unreachable")
"""


def test_a_log_has_no_password() -> None:
    done = subprocess.run([sys.executable, "-c", _LOGS], capture_output=True, text=True, check=True)
    assert "INFO said" in done.stderr
    assert "http://me:***@host/" in done.stderr
    assert "redis://me:***@host/" in done.stderr
    assert "http://me:***@127.0.0.1:1 does not answer" in done.stderr
    assert "canary" not in done.stderr
    assert "INFO GET" not in done.stderr


_PLAIN = """
import logging, sys
from headrace.control.connect import Connect

logging.basicConfig(level=logging.DEBUG)
print(Connect(sys.argv[1]).config("x"))
"""


class _Asks(BaseHTTPRequestHandler):
    """Answers who names himself, and nobody else."""

    def do_GET(self) -> None:
        known = b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")) == b"me:can@ry"
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(b'{"known": "yes"}')


def test_connects_client_says_who_we_are_and_its_library_does_not_log_it() -> None:
    """Without a mask before it: the address that it is given, and logs, has no password."""
    with HTTPServer(("127.0.0.1", 0), _Asks) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://me:can%40ry@127.0.0.1:{server.server_port}"
        done = subprocess.run([sys.executable, "-c", _PLAIN, url], capture_output=True, text=True, check=True)
        server.shutdown()
    assert "'known': 'yes'" in done.stdout
    assert f"HTTP Request: GET http://127.0.0.1:{server.server_port}/connectors/x/config" in done.stderr
    assert "can%40ry" not in done.stderr
    assert "can@ry" not in done.stderr
