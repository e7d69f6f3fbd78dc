"""Which installation a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.local.home import Home

__all__ = ["HomeOption", "home_of"]

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Directory of the stack.", envvar="HEADRACE_HOME", show_default=False),
]


def home_of(option: Path | None) -> Home:
    """Return the home of ``--home``, else the default one."""
    return Home(option.expanduser().absolute()) if option else Home.default()
