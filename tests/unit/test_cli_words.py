"""What help, hints and warnings teach: what they say can be typed, and no password is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command

from headrace.cli import home as cli_home
from headrace.cli import source as source_room
from headrace.cli.main import app
from headrace.config.references import read_reference
from headrace.config.secrets import mask_text
from headrace.control import source, source_check
from headrace.control.registry import Registry
from headrace.model.errors import UsageError
from tests.support.cold_home import add, cold_home, told

CANARY = "c4nary"
URL = f"postgres://me:{CANARY}@db.example/shop"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with nothing registered."""
    root = cold_home(tmp_path / "home")
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    return root


def every(command: Any, path: str = "headrace") -> Iterator[tuple[str, click.Command]]:
    for name, child in getattr(command, "commands", {}).items():
        yield from every(child, f"{path} {name}")
    if not hasattr(command, "commands") and not command.hidden:
        yield path, command


def test_every_command_has_an_example_and_none_a_password() -> None:
    found = dict(every(get_command(app)))
    assert len(found) > 30
    for path, command in found.items():
        text = command.help or ""
        assert "Example" in text, path
        plain = re.sub(r"=(env|file):\w+", "", text)
        assert mask_text(plain) == plain, path


def test_a_password_of_a_source_on_the_command_line_is_warned_of(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(home, "shop", "postgresql://me@db.example:5432/shop")
    entry = Registry(home / "registry.db").source("shop")
    monkeypatch.setattr(source, "add", lambda *_, **__: entry)
    monkeypatch.setattr(source_check, "check", lambda *_, **__: [])
    monkeypatch.setattr(source_room, "facts_of", lambda *_: {})
    monkeypatch.setenv("SHOP_URL", URL)
    for words in (("add", "shop"), ("check",)):
        warned = json.loads(told("source", *words, URL, "--json").stdout)["findings"]
        assert [(one["severity"], one["code"]) for one in warned] == [("warning", "SECRET_ON_COMMAND_LINE")]
        assert CANARY not in str(warned)
        assert "SECRET_ON_COMMAND_LINE" in told("source", *words, URL).stdout
        for safe in ("env:SHOP_URL", "postgres://me@db.example/shop"):
            assert json.loads(told("source", *words, safe, "--json").stdout)["findings"] == []


def test_a_setting_that_is_none_is_told_as_the_command_takes_it(home: Path) -> None:
    add(home, "shop", "postgresql://me@db.example:5432/shop", sinks=("cache",))
    error = json.loads(told("sink", "set", "cache", "unheld", "--json", code=2).stderr)["error"]
    assert error["hint"] == "Write unheld=POLICY or unheld.SCHEMA.TABLE.COLUMN=POLICY."
    error = json.loads(told("sink", "rotate", "cache", "--set", "password", "--json", code=2).stderr)["error"]
    assert error["hint"] == "Write --set key=value."


@pytest.mark.parametrize("command", ["add", "check"])
def test_a_kind_that_is_mistyped_is_told_before_all_else(home: Path, command: str) -> None:
    told_ = told("sink", command, "search", "--kind", "elastic", "--json", code=2)
    error = json.loads(told_.stderr)["error"]
    assert error["code"] == "SINK_KIND_UNKNOWN"
    assert error["hint"] == "Did you mean elasticsearch? Kinds: elasticsearch, redis, delta."


def test_a_secret_is_read_from_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "one").write_text(f"{CANARY}\n")
    (tmp_path / "several").write_text(f"password={CANARY}\n")
    assert read_reference("file:~/one") == CANARY
    assert read_reference("file:~/several:password") == CANARY
    with pytest.raises(UsageError) as missing:
        read_reference("file:~nobody-of-this-name/one")
    assert missing.value.code == "SECRET_MISSING"
