"""Whatever goes wrong, a command ends with a sentence, a code and a hint, and with no traceback."""

from __future__ import annotations

import http.server
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli import home as cli_home
from headrace.cli import journal as journal_room
from headrace.cli.main import app
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SinkEntry
from headrace.local.credentials import Credentials
from headrace.local.home import Home
from headrace.model.errors import HeadraceError
from tests.support.entries import source_entry


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of an installation that has servers of its own, none of which is there."""
    monkeypatch.setenv("HEADRACE_CONNECT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setattr(cli_home, "_named", [])
    Home(tmp_path).pipelines.mkdir(parents=True)
    return tmp_path


@pytest.fixture
def sink(home: Path) -> str:
    with Registry(home / "registry.db").begin() as session:
        session.add(source_entry("shop", []))
        session.flush()
        session.add(
            SinkEntry(
                name="cache", kind="redis", source="shop", settings={"url": "redis://h"}, tables={},
                incomplete={}, incomplete_ms={}, on_schema_change="lenient", created_ms=1,
            )
        )  # fmt: skip
    return "cache"


def error_of(done: Result, code: str) -> dict[str, Any]:
    """Return the error that a command with --json has printed."""
    assert done.exit_code in (1, 2), done.output
    assert isinstance(done.exception, SystemExit)
    told: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])["error"]
    assert told["code"] == code, told
    assert told["hint"]
    return told


def run(*words: str) -> Result:
    return CliRunner().invoke(app, [*words])


@pytest.mark.parametrize("words", ["source list", "status", "down", "journal", "up", "lag"])
@pytest.mark.parametrize("place", ["/dev/null/x", "FILE"])
def test_a_home_that_cannot_be(words: str, place: str, home: Path) -> None:
    (home / "file").touch()
    place = place.replace("FILE", str(home / "file"))
    told = error_of(run("--home", place, *words.split(), "--json"), "HOME_UNUSABLE")
    assert place in told["message"]


def test_a_registry_that_cannot_be_made_and_one_that_is_damaged(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "registry.db").mkdir()
    told = error_of(run("journal", "--json"), "REGISTRY_UNUSABLE")
    assert f"ls -ld {home}" in told["hint"]
    (home / "registry.db").rmdir()

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted", str(home))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", refused)
        told = error_of(run("dlq", "list", "--json"), "REGISTRY_UNUSABLE")
    assert (f"ls -ld {home}" in told["hint"], "Operation not permitted" in told["message"]) == (True, True)
    (home / "registry.db").write_bytes(b"no database at all" * 100)
    told = error_of(run("journal", "--json"), "REGISTRY_UNUSABLE")
    command, _, then = told["hint"].partition("Without one: ")[2].partition(" -- then ")
    assert "lag` names" in then
    assert os.system(command) == 0  # noqa: S605 - as a person pastes it
    assert run("journal", "--json").exit_code == 0


def test_a_registry_whose_folder_cannot_be_made() -> None:
    with pytest.raises(HeadraceError) as refused:
        Registry(Path("/proc/nowhere/registry.db"))
    assert refused.value.code == "REGISTRY_UNUSABLE"
    assert "ls -ld /proc/nowhere" in refused.value.hint


def test_a_registry_that_somebody_holds(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Registry(home / "registry.db")

    def impatient(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout = 1")

    monkeypatch.setattr("headrace.control.registry._configure", impatient)
    with closing(sqlite3.connect(home / "registry.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        told = error_of(run("dlq", "list", "--json"), "REGISTRY_UNUSABLE")
    assert told["hint"] == f"Another process holds it: fuser -v {home}/registry.db"


@pytest.mark.parametrize("words", ["journal -n 99999999999999999999", "dlq list"])
def test_numbers_larger_than_any(words: str, home: Path) -> None:
    assert run(*words.split(), "--json").exit_code == 0


def test_a_letter_of_a_number_that_no_letter_has(home: Path) -> None:
    for words in ("show", "discard"):
        error_of(run("dlq", words, "99999999999999999999", "--json"), "LETTER_UNKNOWN")


def test_an_address_of_connect_that_is_no_url(home: Path, sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CONNECT_URL", "http://me:secret@h:port")
    done = run("source", "pause", "shop", "--json")
    assert "http://me:***@h:port" in error_of(done, "CONNECT_URL_INVALID")["message"]
    assert "secret" not in done.output


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    do_PUT = do_GET  # noqa: N815 - as the server calls it

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def page() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_another_server_in_connect_s_place(
    home: Path, sink: str, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CONNECT_URL", page)
    assert page in error_of(run("source", "pause", "shop", "--json"), "CONNECT_ELSEWHERE")["message"]


def test_a_setting_that_kafka_s_client_refuses(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=SASL-SSL\n")
    with pytest.raises(HeadraceError, match="SASL-SSL") as caught:
        Kafka(f"127.0.0.1:1;{tmp_path / 'client.properties'}")
    assert caught.value.code == "KAFKA_SETTINGS_INVALID"


@pytest.mark.parametrize(("content", "code"), [(None, "PIPELINE_GONE"), ("{", "PIPELINE_DAMAGED")])
def test_a_sink_without_its_pipeline(
    content: str | None, code: str, home: Path, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (home / "pipelines").mkdir(exist_ok=True)
        (home / "pipelines" / f"{sink}.json").write_text(content)
    told = error_of(run("sink", "pause", sink, "--json"), code)
    assert told["hint"] == f"headrace sink resume {sink}"
    monkeypatch.setattr("headrace.control.sink.ensure_engine", lambda _: False)
    assert run("sink", "resume", sink, "--json").exit_code == 0
    assert run("sink", "pause", sink, "--json").exit_code == 0


@pytest.mark.parametrize("content", ["{", "7", '"x"', "[1]", "\xff"])
def test_a_file_of_passwords_that_is_damaged(content: str, home: Path) -> None:
    made = home / "stack"
    Home(made).create()
    Credentials.load_or_make(made)
    (made / "ports.json").write_text("{}")
    (made / "credentials.json").write_text(content, encoding="latin-1")
    told = error_of(run("status", "--json", "--home", str(made)), "CREDENTIALS_DAMAGED")
    assert "down --purge`" in told["hint"]
    assert run("down", "--purge", "--home", str(made)).exit_code == 0
    assert not made.exists()


@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_that_nobody_foresaw_leaves_its_traceback_in_the_home(
    as_json: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Path) -> Registry:
        raise ZeroDivisionError("at postgres://me:secret@h/d")

    monkeypatch.setattr(journal_room, "Registry", broken)
    done = run("journal", *(["--json"] if as_json else []))
    log = home / "logs" / "commands.log"
    assert done.exit_code == 1
    assert "INTERNAL" in done.stderr
    assert str(log) in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "in broken" in log.read_text()
    assert "secret" not in done.stderr + log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    log.unlink()
    log.mkdir()
    assert "No traceback could be written: Is a directory" in run("journal").stderr


def test_what_the_system_refuses_is_told_with_its_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path) -> Registry:
        raise OSError(28, "No space left on device", str(home / "x"))

    monkeypatch.setattr(journal_room, "Registry", full)
    told = error_of(run("journal", "--json"), "SYSTEM_REFUSES")
    assert told["message"] == f"{home}/x cannot be used: No space left on device."


def test_a_reader_who_goes_is_no_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(journal_room, "print_json", gone)
    done = run("journal", "--json")
    assert "error" not in done.stderr
