"""A server that answers “look elsewhere” is not followed: passwords go where they were meant to go."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from headrace.control.connect import Connect
from headrace.model.errors import SinkError, SourceError, StackError
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client


class Told:
    """Two servers: one sends everybody to the other, which notes who comes."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        told = self

        class Elsewhere(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Say nothing."""

            def _answer(self) -> None:
                told.seen.append(self.path)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

        self.elsewhere = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
        there = f"http://127.0.0.1:{self.elsewhere.server_address[1]}/stolen"

        class Here(Elsewhere):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(307)
                self.send_header("location", there)
                self.send_header("content-length", "0")
                self.end_headers()

            do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

        self.here = ThreadingHTTPServer(("127.0.0.1", 0), Here)
        self.url = f"http://127.0.0.1:{self.here.server_address[1]}"


@pytest.fixture
def told() -> Iterator[Told]:
    servers = Told()
    threads = [Thread(target=one.serve_forever, daemon=True) for one in (servers.here, servers.elsewhere)]
    for thread in threads:
        thread.start()
    yield servers
    for one in (servers.here, servers.elsewhere):
        one.shutdown()
        one.server_close()
    for thread in threads:
        thread.join()


def test_elasticsearch_is_not_looked_for_elsewhere(told: Told) -> None:
    config = ElasticsearchSink.Config.model_validate(
        {"url": told.url, "username": "headrace", "password": "c4nary"}
    )
    client = Client(config)
    try:
        for method in ("GET", "PUT"):
            with pytest.raises(SinkError):
                client.request(method, "/rows", None if method == "GET" else {"a": 1})
    finally:
        client.close()
    assert told.seen == []


def test_a_worker_that_does_not_answer_is_named_by_the_setting_that_holds_its_address() -> None:
    with Connect("http://127.0.0.1:1", patience=0.1) as connect, pytest.raises(StackError) as caught:
        connect.config("x")
    assert caught.value.code == "CONNECT_UNREACHABLE"
    assert "HEADRACE_CONNECT_URL" in caught.value.hint


def test_connect_is_not_looked_for_elsewhere(told: Told) -> None:
    with Connect(told.url.replace("//", "//headrace:c4nary@"), patience=0.1) as connect:
        with pytest.raises(SourceError) as caught:
            connect.config("x")
        with pytest.raises(SourceError):
            connect.create("x", {"database.password": "c4nary"})
    assert caught.value.code == "CONNECTOR_REFUSED"
    assert told.seen == []
