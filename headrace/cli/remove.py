"""Commands that remove a source or a sink: they say before what goes, and ask where a person sits."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from connectors.base import Left
from headrace.cli.ask import DryRun, Yes, ask, print_dry
from headrace.cli.context import HomeOption, open_context
from headrace.cli.output import JsonFlag, fails_clearly, out, print_json
from headrace.cli.show import say_to
from headrace.control import would_go
from headrace.control.sink import remove as remove_sink
from headrace.control.source_remove import remove as remove_source

__all__ = ["sink", "source"]


@fails_clearly
def source(
    name: Annotated[str, typer.Argument(help="The source's name.")],
    leave_database: Annotated[
        bool,
        typer.Option("--leave-database", help="Leave slot and publication; for a database that is gone."),
    ] = False,
    leave_connect: Annotated[
        bool,
        typer.Option(
            "--leave-connect",
            help="Leave connector and topics where Connect and Kafka do not answer; for those that are gone.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove connector, slot, publication and topics. Sinks must be removed first.

    Topics hold all of the source's history. On a terminal it asks before, unless --yes is given.
    The exit code is 1 when the database keeps the slot, unless --leave-database asked for that: the slot
    keeps the log until somebody runs the statements that are told.

    Example: `headrace source remove shop --dry-run`
    """
    context = open_context(home)
    goes = would_go.of_source(context, name, leave_database=leave_database)
    topics = f"{len(goes['topic'])} topics and their history"
    if dry_run:
        perhaps = {what: goes.pop(what) for what in ("topic", "connector") if leave_connect}
        print_dry({"source": name}, goes, as_json=as_json, perhaps=perhaps)
        return
    ask(f"source {name} {'and, where Kafka answers,' if leave_connect else 'with'} {topics}", yes=yes)
    say = say_to(as_json=as_json)
    left = remove_source(context, name, leave_database=leave_database, leave_connect=leave_connect, say=say)
    if left.statements and not as_json:
        if leave_database:
            say("if the database is there after all, run this in it, or its slot keeps the log for ever:")
        else:
            slot = "the slot stays, and keeps the log until it goes" if left.slot else "the slot is gone"
            say(f"{left.why}; {slot}; what stays is removed by whoever may run this:")
    _tell(name, left, as_json)
    if left.slot and not leave_database:
        raise typer.Exit(1)


def _tell(name: str, left: Left, as_json: bool) -> None:
    if as_json:
        told: dict[str, Any] = {"left": left.statements}
        if left.statements:
            told |= {"why": left.why, "slot": left.slot}
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
        ask(what, yes=yes)
    left = remove_sink(context, name, purge=purge, say=say_to(as_json=as_json))
    if as_json:
        print_json({"sink": name, "done": "removed", "left": [asdict(target) for target in left]})
    else:
        out.print(f"[green]✓[/] {name} removed", highlight=False)
