"""An option that would do nothing is refused, with the command in which it does something."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import home as cli_home
from headrace.cli import lag as lag_room
from headrace.cli import source as source_room
from headrace.control import tables_check
from headrace.control.tables_check import TakingIn
from tests.support.cold_home import add, cold_home, told


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with a source, whose servers have never run."""
    root = cold_home(tmp_path / "home")
    add(root, "shop", "postgresql://me@db.example:5432/shop")
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    return root


def refused(*words: str) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(told(*words, "--json", code=2).stderr)["error"]
    assert error["code"] == "OPTION_UNUSED", error
    return error


UNUSED = {
    "lag --interval 5": ("--interval", "headrace lag --watch --interval 5"),
    "lag --wait 30 --interval 5": ("--interval", "headrace lag --watch --interval 5"),
    "down --yes": ("--yes", "headrace down --purge --dry-run"),
    "down --dry-run --forget-sources": ("--forget-sources", "headrace down --purge --dry-run"),
    "demo --check --seconds 5 --keep": ("--seconds, --keep", "headrace demo --check"),
    "demo --check --rate 5": ("--rate", "headrace demo --check"),
    "demo --check --seed 1": ("--seed", "headrace demo --check"),
    "demo --check --scale 1": ("--scale", "headrace demo --check"),
}


@pytest.mark.parametrize("words", UNUSED)
def test_options_that_would_do_nothing_are_refused(
    words: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, hint = UNUSED[words]
    error = refused(*words.split())
    assert error["message"].startswith(options)
    assert error["hint"] == hint

    def ended(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    # What is told gets as far as to act.
    monkeypatch.setattr(lag_room, "measure", ended)
    monkeypatch.setattr(lag_room, "Kafka", lambda _: None)
    monkeypatch.setattr("headrace.demo.check.check", ended)
    monkeypatch.setattr("headrace.cli.stack._would", ended)
    monkeypatch.setattr("headrace.cli.stack.refuse_sources_left", lambda _: None)
    told(*shlex.split(hint)[1:], code=130)


ONLY_OF_A_NEW_ONE = [
    "--name other", "--partitions 4", "--partitions 1", "--key public.goods=id",
    "--leave-out public.goods=id", "--schema public", "--snapshot-threads 2", "--load-by-run-mib 1",
]  # fmt: skip


@pytest.mark.parametrize("option", ONLY_OF_A_NEW_ONE)
def test_a_check_of_a_source_refuses_what_is_asked_of_a_new_one(
    option: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_room, "check_again", lambda *_: [])
    error = refused("source", "check", "shop", *option.split())
    assert error["message"].startswith(f"{option.split()[0]} does nothing for shop")
    assert error["hint"] == "headrace source check shop"
    told(*shlex.split(error["hint"])[1:])


def test_a_check_of_a_source_and_a_table_tells_how_a_table_is_checked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def check(_: object, name: str, tables: Any, **__: object) -> TakingIn:
        asked.append((name, [*map(str, tables)]))
        return TakingIn((), (), ())

    monkeypatch.setattr(tables_check, "check", check)
    error = refused("source", "check", "shop", "--table", "public.new one", "-t", "more")
    assert error["hint"] == "headrace source tables add shop 'public.new one' more --dry-run"
    told(*shlex.split(error["hint"])[1:])
    assert asked == [("shop", ["public.new one", "public.more"])]


def test_a_name_that_is_mistyped_is_told_before_an_option(home: Path) -> None:
    words = ("source", "check", "shoop", "--table", "t", "--json")
    assert json.loads(told(*words, code=2).stderr)["error"]["code"] == "SOURCE_UNKNOWN"
