"""What ``--json`` promises: one JSON document, of mistakes and of warnings, too."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli import home as cli_home
from headrace.cli import main
from headrace.cli import psql as psql_room
from headrace.cli import sink as sink_room
from headrace.cli.main import app
from headrace.control.registry import Registry, SinkEntry
from headrace.model.claim import Claim
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

TABLE = TableId("public", "t")
SCHEMA = TableSchema(TABLE, (Column("id", LogicalType.INT32),), ("id",))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of an installation with a sink in this process."""
    with Registry(tmp_path / "registry.db").begin() as session:
        session.add(source_entry("shop", [SCHEMA]))
        session.flush()
        session.add(
            SinkEntry(
                name="cache", kind="memory", source="shop", settings={}, tables={"shop.public.t": {}},
                incomplete={}, incomplete_ms={}, on_schema_change="lenient", created_ms=1,
            )
        )  # fmt: skip
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setenv("HEADRACE_CONNECT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(cli_home, "_named", [])
    return tmp_path


USAGE = {
    "sink add x --json": ("--kind", "headrace sink add --help"),
    "sink nothing --json": ("nothing", "headrace sink --help"),
    "resync --json": ("source", "headrace resync start --help"),
    "nothing --json": ("nothing", "headrace --help"),
    "lag --interval many --json": ("--interval", "headrace lag --help"),
    "--home /h lag --nothing --json": ("--nothing", "headrace --home /h lag --help"),
}


@pytest.mark.parametrize("words", USAGE)
def test_a_mistake_on_the_command_line_is_json(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["headrace", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main.run()
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    error = json.loads(told.err)["error"]
    said, hint = USAGE[words]
    assert (error["code"], error["hint"]) == ("USAGE", hint)
    assert said in error["message"]


def test_without_json_it_is_words_and_other_commands_end_as_they_do(home: Path) -> None:
    def code(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-c", "from headrace.cli.main import run; run()", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    status, said = code("sink", "add", "x")
    assert (status, "Usage: " in said, "sink add" in said) == (2, True, True)
    assert code("dlq", "show", "7", "--json")[0] == 2
    assert code("journal", "--json") == (0, "")


def test_numbers_that_json_does_not_know_are_null(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Database:
        def select(self, _: str) -> list[dict[str, object]]:
            return [{"a": float("nan"), "b": [float("inf"), 1.5], "c": -float("inf"), "d": 2**70}]

    monkeypatch.setattr(psql_room, "_database", lambda *_: Database())
    done = CliRunner().invoke(app, ["psql", "--json", "SELECT 'NaN'::float8"])
    assert "NaN" not in done.stdout
    assert json.loads(done.stdout) == [{"a": None, "b": [None, 1.5], "c": None, "d": 2**70}]


def test_what_json_without_a_statement_tells_is_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Database:
        def select(self, statement: str) -> list[dict[str, str]]:
            return [{"asked": statement}]

    monkeypatch.setattr(psql_room, "_database", lambda *_: Database())
    error = json.loads(CliRunner().invoke(app, ["psql", "--json"]).stderr)["error"]
    assert error["code"] == "SQL_MISSING"
    done = CliRunner().invoke(app, shlex.split(error["hint"])[1:])
    assert json.loads(done.stdout) == [{"asked": "select 1"}]


def test_a_secret_on_the_command_line_is_warned_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_room, "rotate_sink", lambda *_: None)
    monkeypatch.setattr("headrace.control.sink_settings.kinds.secret_names", lambda _: {"password"})
    done = CliRunner().invoke(app, ["sink", "rotate", "cache", "--set", "password=secret", "--json"])
    told = json.loads(done.stdout)
    assert [one["code"] for one in told["warnings"]] == ["SECRET_ON_COMMAND_LINE"]


def test_targets_that_a_purge_leaves_are_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Claim("h", "other", "/their/home", True, 1)
    monkeypatch.setattr("headrace.control.sink_remove.strangers", lambda *_: {TABLE: claim})
    done = CliRunner().invoke(app, ["sink", "remove", "cache", "--purge", "--json"])
    left = [{"table": "public.t", "sink": "other", "home": "/their/home"}]
    assert json.loads(done.stdout) == {"sink": "cache", "done": "removed", "left": left}
