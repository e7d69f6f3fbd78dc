"""``headrace resnapshot``: read tables anew while they keep streaming, then remove what is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from headrace.cli.context import HomeOption, open_context, table_id
from headrace.cli.output import JsonFlag, fails_clearly, out, print_hint, print_json
from headrace.cli.run_bar import shown
from headrace.cli.show import grid, number
from headrace.control.names import known_source
from headrace.control.registry import Registry, ResnapshotEntry, now_ms
from headrace.control.runs import start as work
from headrace.control.runs.repository import all_of, run_of, topics_of

__all__ = ["register"]


class _StartIsShort(TyperGroup):
    """``headrace resnapshot SOURCE …`` means ``headrace resnapshot start SOURCE …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put in the command that was left out."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["start", *args]
        return super().parse_args(ctx, args)


commands = typer.Typer(
    cls=_StartIsShort,
    no_args_is_help=True,
    help="Read tables anew beside the stream, then remove from the sinks what the source no longer has.",
)

Id = Annotated[str, typer.Argument(help="The run's id, or what it begins with.")]
SweepMany = Annotated[
    bool, typer.Option("--sweep-many", help="Allow a sweep of more than a fifth of a table's rows.")
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
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--background", " /--no-wait", help="Show how far it is until it ends, or return at once."
        ),
    ] = True,
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

    Example: `headrace resnapshot shop public.orders --dry-run`
    """
    context = open_context(home)
    chosen, only = [table_id(text) for text in tables or ()], [sink] if sink else []
    if dry_run:
        _would(work.plan(context, source, tables=chosen, sinks=only), as_json=as_json)
        return
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
        _tell(run, as_json=as_json)
        return
    _wait(run.id, home, as_json=as_json)


@commands.command("list")
@fails_clearly
def list_(
    source: Annotated[str | None, typer.Option(help="Only runs of this source.", show_default=False)] = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """List runs, the newest first: who, why, how far, and what each has read, written and removed.

    Example: `headrace resnapshot list --source shop`
    """
    registry = Registry(open_context(home).registry)
    found = all_of(registry, known_source(registry, source) if source else None)
    if as_json:
        print_json([_described(run) for run in found])
        return
    headings = ("run", "source", "state", "tables", "read>", "written>", "swept>", "seconds>", "who", "why")
    told = [_described(run) for run in found]
    out.print(
        grid(
            headings,
            [
                (
                    run["run"],
                    run["source"],
                    run["state"],
                    _tables(run),
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
    """Show a run.

    Example: `headrace resnapshot show 3f2a`
    """
    _tell(run_of(Registry(open_context(home).registry), name), as_json=as_json)


@commands.command("wait")
@fails_clearly
def wait_(name: Id, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Wait until a run is completed; fail if it ends otherwise, or has left tables out.

    Example: `headrace resnapshot wait 3f2a`
    """
    _wait(name, home, as_json=as_json)


@commands.command("pause")
@fails_clearly
def pause(name: Id, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Have a run rest where it is; `resume` has it go on.

    Example: `headrace resnapshot pause 3f2a`
    """
    _tell(work.pause(open_context(home), name), as_json=as_json)


@commands.command("resume")
@fails_clearly
def resume(
    name: Id, sweep_many: SweepMany = False, home: HomeOption = None, as_json: JsonFlag = False
) -> None:
    """Have a paused, failed or unfinished run go on, and wait for it.

    Example: `headrace resnapshot resume 3f2a --sweep-many`
    """
    run = work.resume(open_context(home), name, sweep_many=sweep_many)
    _wait(run.id, home, as_json=as_json)


@commands.command("abort")
@fails_clearly
def abort(name: Id, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """End a run where it is. Rows that were read stay; no more are removed.

    Example: `headrace resnapshot abort 3f2a`
    """
    _tell(work.abort(open_context(home), name), as_json=as_json)


def _wait(name: str, home: Any, *, as_json: bool) -> None:
    with shown(as_json=as_json) as see:
        run = work.wait(open_context(home), name, see=see)
    swept, left_out = work.swept_by(run), run.plan.get("left_out", {})
    if as_json:
        print_json({**_described(run), "removed": [asdict(done) for done in swept]})
    else:
        cells = [(done.sink, done.table, number(done.removed)) for done in swept]
        out.print(grid(("sink", "table", "removed>"), cells))
        for table, reason in left_out.items():
            print_hint(f"{table} is left out: {reason}", mark="[yellow]![/] ")
    if left_out:
        raise typer.Exit(1)


def _tables(run: Mapping[str, Any]) -> str:
    """Return the tables of a run, and those that it has left out."""
    tables, left_out = ", ".join(run["tables"]), ", ".join(run["left_out"])
    return f"{tables}; left out: {left_out}" if left_out else tables


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


def _tell(run: ResnapshotEntry, *, as_json: bool) -> None:
    told = _described(run)
    if as_json:
        print_json(told)
        return
    out.print(f"[bold]{told['run']}[/]  {told['state']}", highlight=False)
    for word in (
        "source",
        "tables",
        "sinks",
        "read",
        "written",
        "swept",
        "seconds",
        "who",
        "why",
        "reason",
        "hint",
    ):
        value = told[word]
        if value not in ("", None):
            said = ", ".join(value) if isinstance(value, list) else value
            print_hint(f"{word}: {said}")
    for table, reason in told["left_out"].items():
        print_hint(f"left out: {table}: {reason}")


def _described(run: ResnapshotEntry) -> dict[str, Any]:
    error = run.error or {}
    return {
        "run": run.id,
        "source": run.source,
        "state": "paused" if run.wanted == "pause" else run.phase,
        "phase": run.phase,
        "tables": sorted(topic.removeprefix(f"{run.source}.") for topic in topics_of(run)),
        "left_out": run.plan.get("left_out", {}),
        "sinks": run.plan["sinks"],
        "read": sum(run.counts.get("read", {}).values()),
        "written": sum(run.counts.get("written", {}).values()),
        "swept": sum(done.removed for done in work.swept_by(run)),
        "seconds": ((run.ended_ms or now_ms()) - (run.asked_ms or run.begun_ms)) / 1000,
        "begun_ms": run.begun_ms,
        "ended_ms": run.ended_ms,
        "who": run.who,
        "why": run.why,
        "reason": run.reason,
        "code": error.get("code", ""),
        "hint": error.get("hint", ""),
    }


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
