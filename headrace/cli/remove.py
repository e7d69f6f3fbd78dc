"""Commands after which something is gone for good: they say before what goes, and ask where a person sits."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from connectors.base import Left
from headrace.cli.context import HomeOption, open_context
from headrace.cli.output import JsonFlag, err, fails_clearly, out, print_json
from headrace.cli.show import say_to
from headrace.control import would_go
from headrace.control.sink import remove as remove_sink
from headrace.control.source_remove import remove as remove_source

__all__ = ["DryRun", "Yes", "ask", "print_dry", "sink", "source"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go; do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal nobody is asked.")]


def ask(what: str, *, yes: bool, as_json: bool) -> None:
    """Ask a person at a terminal whether something is to go; scripts are not asked.

    Args:
        what: What goes, as the end of the question.
        yes: Whether the answer was given before.
        as_json: Whether the command talks to a program.

    Raises:
        typer.Exit: When it is not to go.
    """
    if yes or as_json or not sys.stdin.isatty():
        return
    if not typer.confirm(f"This removes {what} for good. Go on?", err=True):
        err.print("Nothing was removed.")
        raise typer.Exit(1)


def print_dry(subject: Mapping[str, str], goes: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what would go, by what it is; nothing is changed."""
    if as_json:
        print_json({**subject, "dry_run": True, "goes": goes})
        return
    out.print(f"Of {' '.join(f'{kind} {name}' for kind, name in subject.items())} would go for good:")
    for what, names in goes.items():
        for name in names:
            out.print(f"  {what.replace('_', ' '):<16} {name}", markup=False, highlight=False, soft_wrap=True)


@fails_clearly
def source(
    name: Annotated[str, typer.Argument(help="The source's name.")],
    leave_database: Annotated[
        bool,
        typer.Option("--leave-database", help="Leave slot and publication; for a database that is gone."),
    ] = False,
    leave_connect: Annotated[
        bool, typer.Option("--leave-connect", help="Leave connector and topics; for a Connect that is gone.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove connector, slot, publication and topics. Sinks must be removed first.

    Topics hold all of the source's history. On a terminal it asks before, unless --yes is given.

    Example: `headrace source remove shop --dry-run`
    """
    context = open_context(home)
    goes = would_go.of_source(context, name, leave_database=leave_database)
    if dry_run:
        print_dry({"source": name}, goes, as_json=as_json)
        return
    ask(f"source {name} with {len(goes['topic'])} topics and their history", yes=yes, as_json=as_json)
    say = say_to(as_json=as_json)
    left = remove_source(context, name, leave_database=leave_database, leave_connect=leave_connect, say=say)
    if left.statements and not as_json:
        if leave_database:
            say("if the database is there after all, run this in it, or its slot keeps the log for ever:")
        else:
            slot = "the slot stays, and keeps the log until it goes" if left.slot else "the slot is gone"
            say(f"{left.why}; {slot}; what stays is removed by whoever may run this:")
    _tell(name, left, as_json)


def _tell(name: str, left: Left, as_json: bool) -> None:
    if as_json:
        told: dict[str, Any] = {}
        if left.statements:
            told |= {"left": left.statements, "why": left.why, "slot": left.slot}
        if left.apart:
            told |= {"apart": left.apart}
        print_json({"source": name, "done": "removed", **told})
        return
    for statement in left.statements:  # to be pasted: nothing stands before it
        out.print(statement, markup=False, highlight=False, soft_wrap=True)
    out.print(f"[green]✓[/] {name} removed", highlight=False)


@fails_clearly
def sink(
    name: Annotated[str, typer.Argument(help="The sink's name.")],
    purge: Annotated[bool, typer.Option("--purge", help="Also delete its targets and their data.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Stop applying and forget the sink; its data stays unless --purge.

    With --purge it asks before on a terminal, unless --yes is given.

    Example: `headrace sink remove search --purge`
    """
    context = open_context(home)
    goes = would_go.of_sink(context, name, purge=purge)
    if dry_run:
        print_dry({"sink": name}, goes, as_json=as_json)
        return
    if purge:
        what = f"sink {name} with {len(goes['target'])} targets and all data in them"
        ask(what, yes=yes, as_json=as_json)
    left = remove_sink(context, name, purge=purge, say=say_to(as_json=as_json))
    if as_json:
        print_json({"sink": name, "done": "removed", "left": [asdict(target) for target in left]})
    else:
        out.print(f"[green]✓[/] {name} removed", highlight=False)
