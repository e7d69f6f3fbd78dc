"""What a person does with a remedy that status prints: paste the SQL, then the command."""

from __future__ import annotations

import json
import re
import shlex
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from headrace.cli.main import app

__all__ = ["bare", "carry_out", "refused", "steps"]

_THEN = " -- then: "
_OR = "; or "
_AND = " && "
_COMMAND = re.compile(r"headrace [^`;]+")
_HOME = re.compile(r"\bheadrace --home (?:'[^']*'|\S+) ")


def bare(said: str) -> str:
    """Return what is printed as if `--home` had not been given: its commands name no home."""
    return _HOME.sub("headrace ", said)


def steps(remedy: str) -> tuple[str, list[str]]:
    """Return the SQL of a remedy and the arguments of its command; what it has not is empty.

    Of several commands it is the last: those before it show what it would give up.
    """
    statement, _, then = bare(remedy).partition("  # ")[0].rpartition(_THEN)
    then = then.rpartition(_OR)[2].rpartition(_AND)[2]
    if (found := _COMMAND.search(then)) is not None:
        return statement, shlex.split(found.group().strip().rstrip("."))[1:]
    return (then if then.rstrip().endswith(";") else statement), []


def carry_out(remedy: str, home: Path, run: Callable[[str], object]) -> str:
    """Do what a remedy says, and return what its command prints; of several alternatives it is the last.

    Args:
        remedy: As it is printed.
        home: Of the installation, which the command is told beside.
        run: Runs a statement in the source's database.
    """
    statements, words = steps(remedy)
    assert statements or words, f"nothing to do: {remedy!r}"
    for statement in filter(str.strip, statements.split(";")):
        run(statement)
    if not words:
        return ""
    done = CliRunner().invoke(app, [*words, "--home", str(home)])
    looked = words[0] == "lag" and done.stdout and not done.stderr  # it fails for what it shows
    # Of an error that it tells the command has said all; another one would end it without a word.
    unsaid = [] if isinstance(done.exception, SystemExit) else traceback.format_exception(done.exception)
    assert done.exit_code == 0 or looked, f"{remedy}: {done.output}{''.join(unsaid)}"
    return done.stdout


def refused(home: Path, *words: str) -> dict[str, Any]:
    """Return the error that a command of an installation prints; its hint names no home here."""
    done = CliRunner().invoke(app, [*words, "--json", "--home", str(home)])
    assert done.exit_code != 0, done.output
    error: dict[str, Any] = json.loads(bare(done.stderr.splitlines()[-1]))["error"]
    return error
