"""Which installation a command is about."""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.rooms import ROOMS
from headrace.local.home import Home
from headrace.model.errors import EnvironmentError_

__all__ = ["HomeOption", "be_at", "home_of", "pasteable"]

_COMMAND = re.compile(rf"\bheadrace (?=(?:{'|'.join(ROOMS)})\b)(?![^`;\n]*--home\b)")
_named: list[Path] = []


def be_at(home: Path) -> None:
    """Have every command of this process act on an installation, and the commands that it prints too."""
    _named[:] = [home.expanduser().absolute()]
    os.environ["HEADRACE_HOME"] = str(_named[0])


def _note(context: typer.Context, value: Path | None) -> Path | None:
    given = context.get_parameter_source("home")  # or the environment did
    if value is not None and given is not None and given.name == "COMMANDLINE":
        _named[:] = [value.expanduser().absolute()]
    return value


HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="Directory of the stack.",
        envvar="HEADRACE_HOME",
        show_default=False,
        callback=_note,
    ),
]


def pasteable(text: str) -> str:
    """Return a text whose commands act on the installation that this command was told by ``--home``.

    A command that names another one stays as it is.
    """
    if not _named:
        return text
    return _COMMAND.sub(lambda _: f"headrace --home {shlex.quote(str(_named[0]))} ", text)


def home_of(option: Path | None) -> Home:
    """Return the home of ``--home``, else the default one; it need not be there yet.

    Raises:
        EnvironmentError_: When there is no directory in its place, and none can be (``HOME_UNUSABLE``).
    """
    home = Home(option.expanduser().absolute()) if option else Home.default()
    try:
        why = "" if stat.S_ISDIR(home.root.stat().st_mode) else "it is no directory"
    except FileNotFoundError:
        why = ""
    except OSError as error:
        why = (error.strerror or str(error)).lower()
    if why:
        raise EnvironmentError_(
            f"The home {home.root} cannot be used: {why}.",
            code="HOME_UNUSABLE",
            hint="Name another directory with --home or HEADRACE_HOME.",
        )
    return home
