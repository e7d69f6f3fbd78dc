"""The ``headrace`` command: one line per noun, no logic."""

from __future__ import annotations

import typer

from headrace.cli import demo, dlq, journal, lag, psql, resnapshot, sink, source, stack

__all__ = ["app", "run"]

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Keep a search index, a cache and a lake equal to a Postgres database.",
)

stack.register(app)
source.register(app)
sink.register(app)
resnapshot.register(app)
lag.register(app)
dlq.register(app)
journal.register(app)
psql.register(app)
demo.register(app)


def run() -> None:
    """Run the command line; the console script's entry point."""
    app()
