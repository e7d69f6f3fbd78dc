"""``headrace psql``: ask the source database, with the real psql when there is one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from connectors import registry as kinds
from connectors.base import Source
from headrace.cli.context import HomeOption, addresses, home_of, open_context
from headrace.cli.output import JsonFlag, err, fails_clearly, out, print_error, print_json
from headrace.cli.show import grid
from headrace.control.capture import source_of
from headrace.control.registry import Registry
from headrace.model.errors import HeadraceError, UsageError

__all__ = ["register"]

_PROMPT = "headrace=> "


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("psql")
    @fails_clearly
    def psql(
        statement: Annotated[
            str | None,
            typer.Argument(metavar="[SQL]", help="One statement; a prompt without it.", show_default=False),
        ] = None,
        source: Annotated[
            str | None,
            typer.Option(help="A source's database. [default: the only source's, else the local stack's]"),
        ] = None,
        home: HomeOption = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Run SQL in the source database.

        Example: `headrace psql "UPDATE orders SET status = 'paid' WHERE id = 7"`
        """
        database = _database(source, home)
        program = shutil.which("psql")
        if as_json:
            if statement is None:
                raise UsageError(
                    "--json needs a statement.",
                    code="SQL_MISSING",
                    hint="headrace psql --json 'select 1'",
                )
            print_json(database.select(statement), foreign=True)
        elif program is not None:
            _become_psql(program, database, statement)
        elif statement is not None:
            _print(database, statement)
        else:
            _prompt(database)


def _database(source: str | None, home: Path | None) -> Source:
    context = open_context(home, begins=source is None)
    if source is not None:
        return source_of(context, Registry(context.registry).source(source))
    known = Registry(context.registry).sources() if context.registry.exists() else []
    if len(known) == 1:
        return source_of(context, known[0])
    dsn = addresses(home_of(home)).get("postgres_dsn")
    if dsn is None:
        raise UsageError("No database is known.", code="SOURCE_URL_MISSING", hint="Name one with --source.")
    return kinds.build(kinds.kind_of(dsn), dsn)


def _become_psql(program: str, database: Source, statement: str | None) -> NoReturn:
    """Go on as the real psql: Ctrl-C is for it alone, which cancels a statement by it and stays."""
    # The password travels in the environment: arguments are for everybody to read.
    environment = {**os.environ, "PGPASSWORD": database.password}
    arguments = [program, database.address, "-v", "ON_ERROR_STOP=1"]
    if statement is not None:
        arguments += ["-c", statement]
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and psql would then, too
    os.execve(program, arguments, environment)  # noqa: S606 - a shell is what it must not pass through


def _print(database: Source, statement: str) -> None:
    found = database.select(statement)
    if not found:
        out.print("[green]✓[/] done")
        return
    out.print(grid(list(found[0]), [list(row.values()) for row in found], foreign=True))


def _prompt(database: Source) -> None:
    err.print(
        "psql is not installed; a plain prompt instead. One statement a line, Ctrl-D ends.", style="dim"
    )
    while True:
        try:
            statement = input(_PROMPT).strip()
        except (EOFError, KeyboardInterrupt):
            return
        if statement in ("\\q", "quit", "exit"):
            return
        if statement:
            try:
                _print(database, statement)
            except HeadraceError as error:
                print_error(error, as_json=False)
