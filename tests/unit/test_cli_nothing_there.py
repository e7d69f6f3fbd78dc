"""Where nothing is registered or runs, that is what is said; and no question makes anything."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from connectors import registry as kinds
from headrace.cli import home as cli_home
from headrace.cli import lag as lag_room
from headrace.cli import source as source_room
from headrace.control import source, source_check
from headrace.control.registry import Registry
from headrace.local.home import Home
from headrace.observe import pidfile
from tests.support.cold_home import add, cold_home, told
from tests.support.obeying import URL, Servers


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with nothing registered."""
    root = cold_home(tmp_path / "home")
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    return root


@pytest.fixture
def adding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `source add` register the source, and ask no server."""

    def registers(context: Any, name: str, *_: object, **__: object) -> Any:
        context.registry.parent.mkdir(parents=True, exist_ok=True)
        add(context.registry.parent, name, "postgresql://me@db.example:5432/shop")
        return Registry(context.registry).source(name)

    monkeypatch.setattr(source, "add", registers)
    monkeypatch.setattr(source_room, "facts_of", lambda *_: {})
    monkeypatch.setenv("URL", "postgres://me@db.example/shop")


def _refused(*words: str) -> Any:
    return json.loads(told(*words, "--json", code=2).stderr)["error"]


def measures(patch: pytest.MonkeyPatch) -> None:
    """Have `lag` end, as by Ctrl-C, when it begins to measure."""

    def measured(*_: object) -> Any:
        raise KeyboardInterrupt

    patch.setattr(lag_room, "measure", measured)
    patch.setattr(lag_room, "Kafka", lambda _: None)


@pytest.mark.parametrize("words", [("lag",), ("lag", "--watch"), ("lag", "--wait", "600")])
def test_lag_without_a_source_tells_how_to_add_one(
    home: Path, adding: None, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    error = _refused(*words)
    assert (error["code"], error["hint"]) == ("NO_SOURCE", "headrace source add NAME env:URL")
    told(*shlex.split(error["hint"])[1:])

    measures(monkeypatch)
    told("lag", code=130)  # it has come as far as to measure


def test_lag_of_a_registry_that_was_lost_is_no_empty_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.control.names.orphans", lambda *_: ["a pipeline"])

    measures(monkeypatch)
    told("lag", code=130)


def test_a_home_that_was_mistyped_is_told_and_not_made(
    tmp_path: Path, adding: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_home, "_named", [])
    monkeypatch.setenv("HEADRACE_CONNECT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", "127.0.0.1:9")
    home = tmp_path / "mistyped"
    monkeypatch.setenv("HEADRACE_HOME", str(home))
    for words in (
        ("source", "list"),
        ("sink", "list"),
        ("journal",),
        ("lag",),
        ("dlq", "list"),
        ("resnapshot", "list"),
        ("source", "show", "shop"),
        ("source", "remove", "shop"),
        ("recover", "shop"),
        ("source", "tables", "list", "shop"),
    ):
        error = _refused(*words)
        assert error["code"] == "HOME_EMPTY", words
        assert str(home) in error["message"]
        assert not home.exists(), words
    told(*shlex.split(_refused("lag")["hint"].rpartition(": ")[2])[1:])
    assert json.loads(told("journal", "--json").stdout) == []


def test_what_asks_a_database_before_there_is_a_source_makes_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers()
    monkeypatch.setattr(kinds, "build", lambda *_, **__: servers)
    for name in ("Connect", "Kafka"):
        monkeypatch.setattr(source_check, name, lambda _: servers)
    monkeypatch.setattr(cli_home, "_named", [])
    monkeypatch.setenv("HEADRACE_CONNECT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", "127.0.0.1:9")
    monkeypatch.setenv("HEADRACE_POSTGRES_DSN", URL)
    home = tmp_path / "not yet"
    monkeypatch.setenv("HEADRACE_HOME", str(home))
    assert json.loads(told("source", "check", "--name", "shop", "--json").stdout)["fit"]
    assert json.loads(told("psql", "SELECT 1", "--json").stdout) == []
    assert not home.exists()


def test_status_fails_when_something_has_died_and_not_when_it_was_stopped(home: Path) -> None:
    states = {one["name"]: one["state"] for one in json.loads(told("status", "--json").stdout)["servers"]}
    assert set(states.values()) == {"stopped"}
    for name in ("redis", "engine"):
        path = Home(home).pidfile(name)
        path.parent.mkdir(exist_ok=True)
        with subprocess.Popen(["sleep", "60"]) as gone:
            pidfile.write(path, gone.pid)
            gone.kill()
        said = json.loads(told("status", "--json", code=1).stdout)["servers"]
        assert {one["name"] for one in said if one["state"] == "died"} == {name}
        assert name in told("status", code=1).stdout
        path.unlink()
    told("status")


def test_help_lists_the_exit_codes() -> None:
    text = told("--help").stdout
    assert "Exit codes" in text
    for code in ("0", "1", "2", "130"):
        assert f" {code}: it " in text
