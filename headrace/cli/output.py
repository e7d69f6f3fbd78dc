"""What every command prints: JSON on request, else rich text; every error as sentence, code and hint."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from rich.console import Console, ConsoleDimensions
from rich.text import Text
from typer.exceptions import TyperException

from headrace.cli.home import pasteable
from headrace.model.errors import HeadraceError, is_interruption

__all__ = ["JsonFlag", "err", "fails_clearly", "out", "print_error", "print_hint", "print_json"]

_UNBROKEN = 10_000
_PASTED = frozenset(("hint", "remedy", "decline"))
"""Keys under which JSON tells what is to be pasted."""


class _Console(Console):
    """Breaks lines to fit a terminal; what goes elsewhere is read by programs, and is never broken."""

    @property  # type: ignore[misc] # nobody sets it
    def size(self) -> ConsoleDimensions:
        found = super().size
        return found if self.is_terminal else ConsoleDimensions(_UNBROKEN, found.height)


out: Console = _Console()
err: Console = _Console(stderr=True)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

_PASSED = (BrokenPipeError, TyperException, typer.Exit, typer.Abort)
"""What ends a command in ways that Typer knows."""

P = ParamSpec("P")
R = TypeVar("R")


def print_json(value: Any, *, foreign: bool = False, aside: bool = False) -> None:
    """Write ``value`` as one line of JSON to standard output; numbers that JSON does not know are null.

    What stands ``aside`` of the command's one document goes to standard error.

    Commands in it act on the installation that this command was told, as those of :func:`print_hint` do;
    of a ``foreign`` value, such as rows of a database, nothing is changed.
    """
    to = sys.stderr if aside else sys.stdout
    to.write(json.dumps(_finite(value if foreign else _here(value)), default=str) + "\n")
    to.flush()


def _finite(value: Any) -> Any:
    """Return a value of JSON without ``NaN`` and ``Infinity``, which no other reader of JSON takes."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def _here(value: Any, key: str = "") -> Any:
    """Return a value of JSON whose commands act on the installation that this command was told."""
    if isinstance(value, Mapping):
        # What leaves a table out tells its remedy, too.
        return {name: _here(one, key if key == "left_out" else name) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_here(one) for one in value]
    told = isinstance(value, str) and (key in _PASTED or key == "left_out")
    return pasteable(value) if told else value


def print_hint(text: str, *, mark: str = "", style: str = "", to: Console | None = None) -> None:
    """Print a text whose commands can be pasted: they name this installation, and no line of it is broken.

    Args:
        text: What is said; nothing in it is markup.
        mark: Markup that stands before it.
        style: How the text looks.
        to: Where it goes; standard output without one.
    """
    said = Text.from_markup(mark).append(pasteable(text), style=style)
    (to or out).print(said, highlight=False, soft_wrap=True)


def print_error(error: HeadraceError, *, as_json: bool) -> None:
    """Write an error to standard error, as text or, for ``--json``, as one JSON object."""
    if as_json:
        sys.stderr.write(json.dumps(_here({"error": error.as_dict()})) + "\n")
        return
    err.print(f"[bold red]error[/] [{error.code}] ".replace(f"[{error.code}]", f"\\[{error.code}]"), end="")
    err.print(error.message, markup=False, highlight=False)
    if error.hint:
        print_hint(f"hint: {error.hint}", to=err, style="yellow")


def fails_clearly(command: Callable[P, R]) -> Callable[P, R]:
    """Turn every error of a command into its printed form and exit code; none leaves as a traceback."""

    @wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except _PASSED:
            raise
        except Exception as error:
            if is_interruption(error):
                raise KeyboardInterrupt from error
            known = _known(error, kwargs.get("home"))
            print_error(known, as_json=bool(kwargs.get("as_json", False)))
            raise typer.Exit(known.exit_code) from error

    return wrapper


def _known(error: Exception, home: Any) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    from headrace.cli.unforeseen import of_the_system, unforeseen  # rarely needed, and imports a lot

    return of_the_system(error) if isinstance(error, OSError) else unforeseen(error, home)
