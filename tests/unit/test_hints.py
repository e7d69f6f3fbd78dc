"""Every command that a message of Headrace names is one: it exists, with these options and arguments."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from headrace.cli.main import app
from headrace.model.errors import SinkError, named, naming

ROOT = Path(__file__).parents[2]
PACKAGES = ("headrace", "connectors", "sinks", "spark_jobs")
NO_COMMAND = ("as an", "at every", "home", "resync", "watcher", "with its")
"""What follows the name of the program where no command is meant."""
TO_BE_FILLED = {"SOURCE", "SINK"}
"""What whoever shows an error fills in, for it was not known where the error was made."""
PEOPLE_FILL = {"DIRECTORY", "KEY", "NAME", "PATH", "URL", "VARIABLE"}


def _text(node: ast.AST) -> str | None:
    """Return a text, with an X where a value is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (_text(value) if isinstance(value, ast.Constant) else "{X}" for value in node.values)
        return re.sub(r"(?<=\w)\{X\}", "", "".join(part or "" for part in parts)).replace("{X}", "X")
    return None


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return where it stands and what it says, of every text that is no docstring."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            passed = {
                id(inner)
                for node in ast.walk(tree)
                if isinstance(node, ast.JoinedStr)
                for inner in ast.walk(node)
                if inner is not node
            }
            passed |= {
                id(node.body[0].value)
                for node in ast.walk(tree)
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
                and node.body
                and isinstance(node.body[0], ast.Expr)
            }
            for node in ast.walk(tree):
                if id(node) not in passed and (text := _text(node)):
                    yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", text


def commands() -> Iterator[tuple[str, str]]:
    """Yield where it stands, and the words of each command that a text names."""
    for where, text in texts():
        for found in re.finditer(r"\bheadrace ([a-z][^`;,:()\n]*)", text):
            words = re.split(r"\.(?:\s|$)| -- |  # | && ", found[1])[0].strip()
            if not words.startswith(NO_COMMAND):
                yield where, words


@cache
def _program() -> Any:
    return get_command(app)


def wrong(words: str) -> str:
    """Return what is wrong with a command; empty when it can be pasted."""
    command = _program()
    left = re.findall(r"'[^']*'|\S+", words)
    while children := getattr(command, "commands", None):
        if not left or left[0] not in children:
            if "start" not in children:
                return f"no command {left[:1]}"
            command = children["start"]  # it may be left out
            continue
        command = children[left.pop(0)]
    try:
        with command.context_class(command) as context:
            given, rest, _ = command.make_parser(context).parse_args(left)
    except Exception as error:  # noqa: BLE001 - of the parser that Typer has inside
        return str(error)
    if rest:
        return f"{rest} are too many"
    missing = [
        parameter.name
        for parameter in command.params
        if parameter.param_type_name == "argument" and parameter.required and not given.get(parameter.name)
    ]
    return f"without {missing}" if missing else ""


def test_every_command_that_is_named_can_be_pasted() -> None:
    told = list(commands())
    assert len(told) > 60
    assert not [f"{where}: headrace {words}: {why}" for where, words in told if (why := wrong(words))]


def test_what_begins_with_a_command_is_a_line_for_a_shell() -> None:
    """It may be pasted as a whole: what is no command of it stands behind a # or, behind SQL, a --."""
    lines = [(where, text.removesuffix(" && ")) for where, text in texts() if text.startswith("headrace ")]
    said = {
        where: subprocess.run(["bash", "-n", "-c", line], check=False, capture_output=True, text=True).stderr
        for where, line in lines
    }
    assert len(lines) > 60
    assert not {where: why for where, why in said.items() if why}


@pytest.mark.parametrize(
    "words",
    ["resnapsot X", "resnapshot", "sink resume", "sink resume a b c", "sink resume a --no-such", "lag says"],
)
def test_what_cannot_be_pasted_is_found(words: str) -> None:
    assert wrong(words)


def test_only_names_that_somebody_fills_are_left_open() -> None:
    for where, words in commands():
        open_words = set(re.findall(r"\b[A-Z]{2,}\b", words))
        # What is said by the control plane or the command line knows its names.
        knows = where.startswith("headrace/")
        allowed = PEOPLE_FILL if knows else TO_BE_FILLED | PEOPLE_FILL - {"NAME"}
        assert not open_words - allowed, f"{where}: {words}"


def test_names_are_filled_in_where_they_are_known() -> None:
    said = "headrace resnapshot SOURCE public.SOURCES; headrace sink rotate SINK --set password=env:VARIABLE"
    hint = "headrace resnapshot shop public.SOURCES; headrace sink rotate cache --set password=env:VARIABLE"
    assert named(said, source="shop", sink="cache") == hint
    with pytest.raises(SinkError) as caught, naming("shop", "cache"):
        raise SinkError("no", code="NO", hint=said)
    assert caught.value.hint == hint
