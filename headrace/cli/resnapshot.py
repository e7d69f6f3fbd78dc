"""``headrace resnapshot``: read tables anew while they keep streaming, then remove what is gone."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from headrace.cli.context import HomeOption, open_context, table_id
from headrace.cli.output import JsonFlag, fails_clearly, out, print_hint, print_json
from headrace.cli.run_bar import shown
from headrace.cli.run_facts import (
    RunState,
    described,
    tables_of,
    tell,
    tell_it_goes_on,
    telling_of_new,
)
from headrace.cli.show import grid, number
from headrace.control.names import known_source
from headrace.control.registry import Registry, ResnapshotEntry
from headrace.control.runs import start as work
from headrace.control.runs.chosen import refuse_unmirrored
from headrace.control.runs.repository import all_of, run_of
from headrace.control.runs.settling import records_left
from headrace.control.runs.words import state_of
from headrace.model.errors import SourceError

__all__ = ["register"]


class _StartIsShort(TyperGroup):
    """``headrace resnapshot SOURCE …`` means ``headrace resnapshot start SOURCE …``.

    Options may stand before the command, too.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put in the command that was left out; put options that stand before one behind it."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            first = self._first_word(args)
            if first < len(args) and args[first] in self.commands:
                args = [args[first], *args[:first], *args[first + 1 :]]
            else:
                args = ["start", *args]
        return super().parse_args(ctx, args)

    def _first_word(self, args: list[str]) -> int:
        """Return where the first word stands that is neither an option nor an option's value."""
        options = [option for command in self.commands.values() for option in command.params]
        valued = {name for o in options if not getattr(o, "is_flag", True) for name in o.opts}
        place = 0
        while place < len(args) and args[place].startswith("-") and args[place] != "--":
            place += 2 if args[place] in valued else 1
        return place


commands = typer.Typer(
    cls=_StartIsShort,
    no_args_is_help=True,
    subcommand_metavar="SOURCE [TABLE…] | COMMAND [ARGS]…",
)


@commands.callback()
def _resnapshot() -> None:
    """Read tables anew beside the stream, then remove from the sinks what the source no longer has.

    `headrace resnapshot SOURCE [TABLE…]` starts a run, with the options of `start`; the other commands are
    about runs that there are.

    Example: `headrace resnapshot shop public.orders`
    """


Id = Annotated[str, typer.Argument(help="The run's id, or what it begins with.")]
SweepMany = Annotated[
    bool, typer.Option("--sweep-many", help="Allow a sweep of more than a fifth of a table's rows.")
]

Wait = Annotated[
    bool,
    typer.Option(
        "--wait/--background", " /--no-wait", help="Show how far it is until it ends, or return at once."
    ),
]


@commands.command("start")
@fails_clearly
def start(
    source: Annotated[str, typer.Argument(help="The source's name.")],
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables, schema.name; all without any.", show_default=False)
    ] = None,
    sink: Annotated[str | None, typer.Option(help="Sweep only this sink. [default: all]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; do nothing.")] = False,
    sweep_many: SweepMany = False,
    wait: Wait = True,
    queue: Annotated[
        bool, typer.Option("--queue", help="Wait for a run that is at one of the tables already.")
    ] = False,
    rows_per_second: Annotated[
        int | None,
        typer.Option(min=1, help="Read about so many rows a second at most.", show_default=False),
    ] = None,
    max_latency_ms: Annotated[
        int, typer.Option(min=0, help="Rest while a small question takes the database longer.")
    ] = work.MAX_LATENCY_MS,
    why: Annotated[str, typer.Option(help="For people who look at the run later.", show_default=False)] = "",
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Read tables anew beside the stream, then remove from the sinks what the source no longer has.

    `start` may be left out. Readers see no gap. The run goes on when this command is interrupted. A run of
    all tables leaves out, by name, those that cannot be read right; then the exit code is 1.

    --dry-run ends as the run itself would: it fails when the run would be refused, and says why; the exit
    code is 1 when tables would be left out.

    Example: `headrace resnapshot shop public.orders --dry-run`
    """
    context = open_context(home)
    chosen, only = [table_id(text) for text in tables or ()], [sink] if sink else []
    refuse_unmirrored(Registry(context.registry), source, chosen, only)
    if dry_run:
        plan = work.plan(context, source, tables=chosen, sinks=only, queue=queue)
        _would(plan, as_json=as_json)
        if plan.left_out and wait:
            raise typer.Exit(1)
        return
    with telling_of_new(context, source, as_json=as_json):
        run = work.start(
            context,
            source,
            tables=chosen,
            sinks=only,
            sweep_many=sweep_many,
            rows_per_second=rows_per_second,
            max_latency_ms=max_latency_ms,
            why=why,
            queue=queue,
        )
    if not wait:
        tell(context, run, as_json=as_json)
        return
    _wait(run.id, home, as_json=as_json)


@commands.command("list")
@fails_clearly
def list_(
    source: Annotated[str | None, typer.Option(help="Only runs of this source.", show_default=False)] = None,
    state: Annotated[
        list[RunState] | None,
        typer.Option(help="Only runs in this state; may be repeated.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many runs, the newest.", show_default=False)
    ] = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """List runs, the newest first: who, why, how far, and what each has read, written and removed.

    Examples: `headrace resnapshot list --source shop --limit 10` ·
    `headrace resnapshot list --state unfinished --state failed`
    """
    context = open_context(home)
    registry = Registry(context.registry)
    found = all_of(registry, known_source(registry, source) if source else None)
    chosen = [run for run in found if not state or state_of(run) in {one.value for one in state}]
    told = [described(context, run) for run in chosen[:limit]]
    if as_json:
        print_json(told)
        return
    headings = ("run", "source", "state", "tables", "read>", "written>", "swept>", "seconds>", "who", "why")
    out.print(
        grid(
            headings,
            [
                (
                    run["run"],
                    run["source"],
                    run["state"],
                    tables_of(run),
                    *(number(run[what]) for what in ("read", "written", "swept")),
                    f"{run['seconds']:.1f}",
                    run["who"],
                    run["why"],
                )
                for run in told
            ],
        )
    )


@commands.command("show")
@fails_clearly
def show(name: Id, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Show a run: its state, what it has read of about how many rows, and what is still to be applied.

    A run that was told to rest or to end is `pausing` or `aborting` until its process has done so.

    Example: `headrace resnapshot show 3f2a`
    """
    context = open_context(home)
    tell(context, run_of(Registry(context.registry), name), as_json=as_json)


@commands.command("wait")
@fails_clearly
def wait_(
    name: Id,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Wait up to so long; fail when the run is not completed by then. It goes on.",
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Wait until a run is completed; fail if it ends otherwise, or has left tables out.

    The run goes on when this command is interrupted.

    Example: `headrace resnapshot wait 3f2a --timeout 3600`
    """
    _wait(name, home, as_json=as_json, timeout=timeout)


@commands.command("pause")
@fails_clearly
def pause(name: Id, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Have a run rest where it is; `resume` has it go on.

    It is `pausing` until the connector has stopped. Rows that were read are applied all the same.

    Example: `headrace resnapshot pause 3f2a`
    """
    context = open_context(home)
    tell(context, work.pause(context, name), as_json=as_json)


@commands.command("resume")
@fails_clearly
def resume(
    name: Id,
    sweep_many: SweepMany = False,
    wait: Wait = True,
    rows_per_second: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="From now on read about so many rows a second at most; 0: as fast as it goes."
            " [default: as before]",
            show_default=False,
        ),
    ] = None,
    max_latency_ms: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="From now on rest while a small question takes the database longer. [default: as before]",
            show_default=False,
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Have a paused, failed or unfinished run go on, and wait for it; or change the pace of one under way.

    The run goes on when this command is interrupted.

    Examples: `headrace resnapshot resume 3f2a --sweep-many` ·
    `headrace resnapshot resume 3f2a --rows-per-second 500 --background`
    """
    context = open_context(home)
    pace: dict[str, int | None] = {}
    if rows_per_second is not None:
        pace["rows_per_second"] = rows_per_second or None
    if max_latency_ms is not None:
        pace["max_latency_ms"] = max_latency_ms
    run = work.resume(context, name, sweep_many=sweep_many, **pace)
    if not wait:
        tell(context, run, as_json=as_json)
        return
    _wait(run.id, home, as_json=as_json)


@commands.command("abort")
@fails_clearly
def abort(name: Id, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """End a run where it is. Rows that were read stay; no more are removed.

    A run under way is `aborting` until its process has ended it, within seconds. Tables that were read and
    not swept may keep rows that the source no longer has: `headrace lag` tells them, with what reads them
    anew, until a next run has swept them.

    Example: `headrace resnapshot abort 3f2a`
    """
    context = open_context(home)
    tell(context, work.abort(context, name), as_json=as_json)


def _wait(name: str, home: Any, *, as_json: bool, timeout: float | None = None) -> None:
    context = open_context(home)
    known = run_of(Registry(context.registry), name).id
    began = time.monotonic()
    try:
        with shown(as_json=as_json, left=partial(records_left, context)) as see:

            def look(run: ResnapshotEntry) -> None:
                see(run)
                if timeout is not None and time.monotonic() - began >= timeout:
                    raise _not_done(run, timeout)

            run = work.wait(context, known, see=look)
    except KeyboardInterrupt:
        tell_it_goes_on(known, as_json=as_json)
        raise
    swept, left_out = work.swept_by(run), run.plan.get("left_out", {})
    if as_json:
        print_json({**described(context, run), "removed": [asdict(done) for done in swept]})
    else:
        cells = [(done.sink, done.table, number(done.removed)) for done in swept]
        out.print(grid(("sink", "table", "removed>"), cells))
        for table, reason in left_out.items():
            print_hint(f"{table} is left out: {reason}", mark="[yellow]![/] ")
    if left_out:
        raise typer.Exit(1)


def _not_done(run: ResnapshotEntry, timeout: float) -> SourceError:
    return SourceError(
        f"After {timeout:g} s run {run.id} is still {state_of(run)}. It goes on.",
        code="RESNAPSHOT_NOT_DONE",
        hint=f"headrace resnapshot wait {run.id}",
    )


def _would(plan: work.Plan, *, as_json: bool) -> None:
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
    for table, reason in plan.left_out.items():
        print_hint(f"Would leave {table} out: {reason}")


def _resync(ctx: typer.Context) -> None:
    """The same as `resnapshot`."""
    # Mistakes are told by who was called first, in the form that was asked for.
    code = get_command(commands).main(ctx.args, prog_name="headrace resync", standalone_mode=False)
    raise typer.Exit(code if isinstance(code, int) else 0)


def register(app: typer.Typer) -> None:
    """Add the commands and their other name to ``app``."""
    app.add_typer(commands, name="resnapshot")
    app.command(
        "resync",
        hidden=True,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_resync)
