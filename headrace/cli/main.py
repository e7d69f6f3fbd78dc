"""The ``headrace`` command; what there is stands in :data:`headrace.cli.rooms.ROOMS`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.home import be_at
from headrace.cli.rooms import Rooms

__all__ = ["app", "run"]

app = typer.Typer(name="headrace", cls=Rooms, no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def headrace(
    home: Annotated[
        Path | None,
        typer.Option("--home", help="Directory of the stack.", show_default=False),
    ] = None,
) -> None:
    """Keep a search index, a cache and a lake equal to a Postgres database."""
    if home is not None:
        be_at(home)


def run() -> None:
    """Run the command line; the console script's entry point."""
    app()
