"""``headrace resnapshot``: read tables anew while they keep streaming, then remove what is gone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headrace.cli.context import HomeOption, open_context, table_id
from headrace.cli.output import JsonFlag, fails_clearly, out, print_json
from headrace.cli.show import grid, number, say_to
from headrace.control import resnapshot as work

__all__ = ["register"]


@fails_clearly
def resnapshot(
    source: Annotated[str, typer.Argument(help="The source's name.")],
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables, schema.name; all without any.", show_default=False)
    ] = None,
    sink: Annotated[str | None, typer.Option(help="Sweep only this sink. [default: all]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; do nothing.")] = False,
    sweep_many: Annotated[
        bool, typer.Option("--sweep-many", help="Allow a sweep of more than a fifth of a table's rows.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Read tables anew beside the stream, then remove from the sinks what the source no longer has.

    Readers of the sinks see no gap. An interrupted run goes on when the command is given again.

    Example: `headrace resnapshot shop public.orders --dry-run`
    """
    context = open_context(home)
    chosen, only = [table_id(text) for text in tables or ()], [sink] if sink else []
    if dry_run:
        plan = work.plan(context, source, tables=chosen, sinks=only)
        if as_json:
            print_json({"dry_run": True, **asdict(plan)})
            return
        out.print(
            f"Would read about {plan.rows:,} rows of {len(plan.tables)} tables anew, then sweep "
            f"{', '.join(plan.sinks) or 'no sink'} of rows older than these offsets:",
            highlight=False,
        )
        marks = [(table, ", ".join(map(number, marks))) for table, marks in plan.tables.items()]
        out.print(grid(("table", "offset>"), marks))
        return
    swept = work.resnapshot(
        context, source, tables=chosen, sinks=only, sweep_many=sweep_many, say=say_to(as_json=as_json)
    )
    if as_json:
        print_json({"source": source, "swept": [asdict(done) for done in swept]})
        return
    out.print(
        grid(("sink", "table", "removed>"), [(done.sink, done.table, number(done.removed)) for done in swept])
    )


def register(app: typer.Typer) -> None:
    """Add the command and its other name to ``app``."""
    app.command("resnapshot")(resnapshot)
    app.command("resync", help="The same as `resnapshot`.", hidden=True)(resnapshot)
