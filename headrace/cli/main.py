"""The ``headrace`` command; what there is stands in :data:`headrace.cli.rooms.ROOMS`."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from headrace.cli.home import be_at
from headrace.cli.output import print_error
from headrace.cli.rooms import Rooms
from headrace.model.errors import UsageError

__all__ = ["app", "run"]

app = typer.Typer(
    name="headrace",
    cls=Rooms,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


@app.callback()
def headrace(
    home: Annotated[
        Path | None,
        typer.Option("--home", help="Directory of the stack.", show_default=False),
    ] = None,
    _: Annotated[
        bool,
        typer.Option("--version", help="Print the version and end.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    """Keep a search index, a cache and a lake equal to a Postgres database.

    Exit codes:

    - 0: it is done. Of `lag`, `status`, the checks and `demo --check` also: all is well.

    - 1: it failed, or something is wrong: a check finds an error, a server has died, a store differs,
    tables were left out, a slot stays that nobody asked to leave.

    - 2: it cannot be done as it was asked for: an option, a name or an address is wrong.

    - 130: it was interrupted with Ctrl-C.
    """
    if home is not None:
        be_at(home)


def run() -> None:
    """Run the command line; the console script's entry point."""
    words = sys.argv[1:]
    if "--json" not in (words[: words.index("--")] if "--" in words else words):
        app()
        return
    try:
        code = get_command(app).main(words, prog_name="headrace", standalone_mode=False)
    except TyperException as mistake:
        print_error(_told(mistake), as_json=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _told(mistake: TyperException) -> UsageError:
    """Return what Typer says of a mistake on the command line, as other errors are told."""
    said = mistake.format_message() if hasattr(mistake, "format_message") else str(mistake)
    context = getattr(mistake, "ctx", None)
    command = context.command_path if context is not None else "headrace"
    return UsageError(said, code="USAGE", hint=f"{command} --help")
