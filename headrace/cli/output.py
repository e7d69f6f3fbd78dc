"""What every command prints: JSON on request, else rich text; every error as sentence, code and hint."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from rich.console import Console, ConsoleDimensions

from headrace.cli.home import pasteable
from headrace.model.errors import HeadraceError

__all__ = ["JsonFlag", "err", "fails_clearly", "out", "print_json"]

_UNBROKEN = 10_000


class _Console(Console):
    """Breaks lines to fit a terminal; what goes elsewhere is read by programs, and is never broken."""

    @property  # type: ignore[misc] # nobody sets it
    def size(self) -> ConsoleDimensions:
        found = super().size
        return found if self.is_terminal else ConsoleDimensions(_UNBROKEN, found.height)


out: Console = _Console()
err: Console = _Console(stderr=True)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

P = ParamSpec("P")
R = TypeVar("R")


def print_json(value: Any) -> None:
    """Write ``value`` as one line of JSON to standard output."""
    sys.stdout.write(json.dumps(value, default=str) + "\n")
    sys.stdout.flush()


def print_error(error: HeadraceError, *, as_json: bool) -> None:
    """Write an error to standard error, as text or, for ``--json``, as one JSON object."""
    if as_json:
        sys.stderr.write(json.dumps({"error": error.as_dict()}) + "\n")
        return
    err.print(f"[bold red]error[/] [{error.code}] ".replace(f"[{error.code}]", f"\\[{error.code}]"), end="")
    err.print(error.message, markup=False, highlight=False)
    if error.hint:
        err.print(f"hint: {pasteable(error.hint)}", markup=False, highlight=False, style="yellow")


def fails_clearly(command: Callable[P, R]) -> Callable[P, R]:
    """Turn a :class:`HeadraceError` of a command into its printed form and exit code."""

    @wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except HeadraceError as error:
            print_error(error, as_json=bool(kwargs.get("as_json", False)))
            raise typer.Exit(error.exit_code) from error

    return wrapper
