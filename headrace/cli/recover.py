"""``headrace recover``: begin a source's history anew, while the sinks go on serving what they have."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.context import HomeOption, open_context
from headrace.cli.output import JsonFlag, fails_clearly, out, print_hint, print_json
from headrace.cli.show import grid, number, say_to
from headrace.control import recover as work
from headrace.control.differences import Differences
from headrace.control.recover import Recovery

__all__ = ["register"]


@fails_clearly
def recover(
    source: Annotated[str, typer.Argument(help="The source's name.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; do nothing.")] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Mend a source whose history has a gap: lost slot, restored database, lost or trimmed topics.

    It makes the slot, the topics and the connector's positions anew and reads every table. The sinks go on
    serving what they have; each row that is read replaces theirs, and what the database no longer has is
    removed at the end. It says how many rows were wrong: missing, other, or not to be there. What people
    change meanwhile counts, too. An interrupted recovery goes on when the command is given again.

    A table whose target at one sink is broken stops nothing else: it is left out there, and told with the
    command that mends it.

    --dry-run ends with exit code 1 when the recovery would be refused, and says why.

    Example: `headrace recover shop --dry-run`
    """
    context = open_context(home)
    if dry_run:
        _would(work.plan(context, source), as_json=as_json)
        return
    done = work.recover(context, source, say=say_to(as_json=as_json))
    if as_json:
        print_json(done.as_dict())
        return
    out.print(grid(("sink", "table", "were missing>", "were other>", "removed>"), map(_cells, done.tables)))
    for found in filter(lambda found: found.unread, done.tables):
        _warn(f"what was wrong with {found.table} at {found.sink} is not known: {found.unread}")
    for one in done.left_out:
        _warn(f"{one.table} at {one.sink} is left out: {one.reason}")
        print_hint(f"  remedy: {one.remedy}")
    mark, but = "[green]✓[/]", ""
    if left := len(done.left_out):
        mark, but = "[yellow]![/]", f", but for {left} {'table' if left == 1 else 'tables'} at a sink"
    out.print(f"{mark} {source} recovered{but}: {done.wrong:,} rows were wrong", highlight=False)


def _would(plan: Recovery, *, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": True, **plan.as_dict()})
    else:
        print_hint(f"reason: {plan.reason or 'nothing is known to be wrong'}")
        if plan.unfinished:
            out.print(f"An interrupted recovery would go on: {plan.unfinished}.", highlight=False)
        out.print(
            f"Would read about {plan.rows:,} rows of {len(plan.tables)} tables into"
            f" {', '.join(plan.sinks) or 'no sink'}, then remove what the database no longer has.",
            highlight=False,
        )
    if plan.refused is not None:
        raise plan.refused


def _warn(said: str) -> None:
    print_hint(said, mark="[yellow]![/] ")


def _cells(found: Differences) -> tuple[str, ...]:
    counted = (found.missing, found.other, found.removed)
    return found.sink, found.table, *(number(None if found.unread else rows) for rows in counted)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("recover")(recover)
