"""``headrace source``: the database that is followed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from connectors.base import Left
from headrace.cli import tables as tables_room
from headrace.cli.context import HomeOption, open_context, table_id
from headrace.cli.output import JsonFlag, fails_clearly, out, print_json
from headrace.cli.show import age, findings_as_dicts, grid, print_findings, say_to, size, state_text
from headrace.cli.source_options import (
    ADDRESS,
    LeaveOut,
    Name,
    Partitions,
    Schemas,
    Tables,
    Threads,
    Url,
    left_out,
    url_of,
)
from headrace.cli.tables import Keys, declared
from headrace.config.references import is_reference, read_reference
from headrace.config.source import NAME, SourceSettings
from headrace.control import lag, source, source_check
from headrace.control import refresh as following
from headrace.control.capture import settings_of
from headrace.control.columns import changes
from headrace.control.context import Context
from headrace.control.fitness import check_again
from headrace.control.registry import Registry, SourceEntry
from headrace.control.rotate import rotate_source
from headrace.model.errors import UsageError
from headrace.model.finding import Severity

__all__ = ["register"]

commands = typer.Typer(no_args_is_help=True, help="The source database: check, add, list, show, remove.")


@commands.command("check")
@fails_clearly
def check(
    url: Annotated[
        str | None, typer.Argument(help=f"{ADDRESS} Or the name of a source.", show_default=False)
    ] = None,
    table: Tables = None,
    schema: Schemas = None,
    key: Keys = None,
    leave_out: LeaveOut = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="The name that the source is to have: its slot, connector and topics are looked at, too.",
        ),
    ] = None,
    partitions: Partitions = 1,
    snapshot_threads: Threads = 1,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what speaks for or against following a database, or one that is a source. Changes nothing.

    Example: `headrace source check postgres://me@db.example/shop --name shop --table public.orders`
    """
    if url and NAME.fullmatch(url):
        findings = check_again(open_context(home), url)
    else:
        findings = source_check.check(
            url_of(url, home),
            tables=[table_id(text) for text in table or ()],
            schemas=schema or ["public"],
            keys=dict(map(declared, key or ())),
            settings=SourceSettings(
                partitions=partitions, snapshot_threads=snapshot_threads, leave_out=left_out(leave_out)
            ),
            place=(open_context(home), name) if name else None,
        )
    fit = all(finding.severity is not Severity.ERROR for finding in findings)
    if as_json:
        print_json({"fit": fit, "findings": findings_as_dicts(findings)})
    else:
        print_findings(findings)
    if not fit:
        raise typer.Exit(1)


@commands.command("add")
@fails_clearly
def add(
    name: Name,
    url: Url = None,
    table: Tables = None,
    schema: Schemas = None,
    key: Keys = None,
    leave_out: LeaveOut = None,
    wait: Annotated[bool, typer.Option(help="Return only when it streams and every row is read.")] = True,
    heartbeat_ms: Annotated[int, typer.Option(min=100, help="Grain of freshness, milliseconds.")] = 1000,
    snapshot_threads: Threads = 1,
    load_by_run_mib: Annotated[
        int,
        typer.Option(
            min=0,
            help="A table of so many MiB is first loaded by a run: the others stream meanwhile, and what is"
            " broken off goes on where it was.",
        ),
    ] = 512,
    retention_ms: Annotated[
        int,
        typer.Option(
            min=-1, help="How long topics keep changes; -1: for ever, so that later sinks can load."
        ),
    ] = -1,
    partitions: Partitions = 1,
    skip_unfit: Annotated[
        bool,
        typer.Option("--skip-unfit", help="Leave out, by name, what cannot be followed; follow the rest."),
    ] = False,
    max_record_bytes: Annotated[
        int,
        typer.Option(
            min=1 << 20, max=64 << 20, help="A change with a larger record goes to the dead letter queue."
        ),
    ] = 16 << 20,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Follow a database: check it, prepare it, start its connector, wait until it streams.

    Example: `headrace source add shop postgres://me:secret@db.example/shop --schema public`
    """
    context = open_context(home)
    entry = source.add(
        context,
        name,
        url_of(url, home),
        tables=[table_id(text) for text in table or ()],
        schemas=schema or ["public"],
        keys=dict(map(declared, key or ())),
        settings=SourceSettings(
            heartbeat_ms=heartbeat_ms,
            snapshot_threads=snapshot_threads,
            load_by_run_mib=load_by_run_mib,
            retention_ms=retention_ms,
            partitions=partitions,
            max_record_bytes=max_record_bytes,
            leave_out=left_out(leave_out),
        ),
        skip_unfit=skip_unfit,
        wait=wait,
        say=say_to(as_json=as_json),
    )
    if as_json:
        print_json(_described(context, entry))
    else:
        doing = "streams" if wait else "is being read"
        out.print(
            f"[green]✓[/] {name} {doing}: {len(entry.tables)} tables of {entry.address}", highlight=False
        )


@commands.command("list")
@fails_clearly
def list_(home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """List sources and how they do.

    Example: `headrace source list`
    """
    context = open_context(home)
    entries = Registry(context.registry).sources()
    if as_json:
        print_json([_described(context, entry) for entry in entries])
        return
    states = {found.source: found for found in lag.measure(context).sources}
    out.print(
        grid(
            ("source", "state", "tables>", "slot lag>", "address"),
            [
                (
                    entry.name,
                    state_text(states[entry.name].state),
                    len(entry.tables),
                    size(states[entry.name].slot_lag_bytes),
                    entry.address,
                )
                for entry in entries
            ],
        )
    )


@commands.command("show")
@fails_clearly
def show(name: Name, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Show one source: its state, its tables, their keys and topics.

    Example: `headrace source show shop --json`
    """
    context = open_context(home)
    entry = Registry(context.registry).source(name)
    described = _described(context, entry)
    if as_json:
        print_json(described)
        return
    out.print(f"[bold]{name}[/]  {state_text(described['state'])}  {entry.address}", highlight=False)
    for label in ("reason", "remedy"):
        if described[label]:
            out.print(f"{label}: {described[label]}", markup=False, highlight=False)
    held, beat = size(described["slot_lag_bytes"]), age(described["heartbeat_seconds"])
    out.print(f"slot lag {held}, last heartbeat {beat} ago", highlight=False)
    out.print(
        grid(
            ("table", "key", "columns>", "topic"),
            [
                (
                    table,
                    ", ".join(facts["key"]) + (" (declared)" if facts["key_declared"] else ""),
                    len(facts["columns"]),
                    facts["topic"],
                )
                for table, facts in described["tables"].items()
            ],
        )
    )


@commands.command("refresh")
@fails_clearly
def refresh(
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what has changed; do nothing.")] = False,
    resnapshot: Annotated[
        bool, typer.Option(help="Read tables with new columns anew, so that older rows get their values.")
    ] = True,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Follow tables whose columns have changed: in every sink, then in rows written before.

    Example: `headrace source refresh shop --dry-run`
    """
    context = open_context(home)
    changed = (
        changes(context, name)
        if dry_run
        else following.refresh(context, name, read_anew=resnapshot, say=say_to(as_json=as_json))
    )
    if as_json:
        said = [
            {
                "table": str(c.table),
                "added": c.added,
                "dropped": c.dropped,
                "retyped": c.retyped,
                "recreated": c.recreated,
            }
            for c in changed
        ]
        print_json({"source": name, "dry_run": dry_run, "changed": said})
        return
    if not changed:
        out.print("Every table has the columns that are mirrored.")
        return
    cells = [
        (str(c.table), *map(", ".join, (c.added, c.dropped, c.retyped)), "yes" if c.recreated else "")
        for c in changed
    ]
    out.print(grid(("table", "added", "gone", "changed", "made anew"), cells))


@commands.command("pause")
@fails_clearly
def pause(name: Name, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Stop reading; the database keeps the WAL meanwhile. Warns when it may lose the slot or fill its disk.

    Example: `headrace source pause shop`
    """
    found = source.pause(open_context(home), name)
    if as_json:
        print_json({"source": name, "done": "paused", "warnings": findings_as_dicts(found)})
    else:
        print_findings(found)
        _done(name, "paused", as_json)


@commands.command("resume")
@fails_clearly
def resume(name: Name, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Read on, also after a failure.

    Example: `headrace source resume shop`
    """
    source.resume(open_context(home), name)
    _done(name, "resumed", as_json)


@commands.command("remove")
@fails_clearly
def remove(
    name: Name,
    leave_database: Annotated[
        bool,
        typer.Option("--leave-database", help="Leave slot and publication; for a database that is gone."),
    ] = False,
    leave_connect: Annotated[
        bool, typer.Option("--leave-connect", help="Leave connector and topics; for a Connect that is gone.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove connector, slot, publication and topics. Sinks must be removed first.

    Example: `headrace source remove shop`
    """
    say = say_to(as_json=as_json)
    leave = {"leave_database": leave_database, "leave_connect": leave_connect}
    left = source.remove(open_context(home), name, **leave, say=say)
    if left.statements and not as_json:
        if leave_database:
            say("if the database is there after all, run this in it, or its slot keeps the log for ever:")
        else:
            slot = "the slot stays, and keeps the log until it goes" if left.slot else "the slot is gone"
            say(f"{left.why}; {slot}; what stays is removed by whoever may run this:")
    _done(name, "removed", as_json, left)


@commands.command("rotate")
@fails_clearly
def rotate(
    name: Name,
    password: Annotated[str, typer.Argument(help="Where the new password is: env:NAME or file:PATH[:key].")],
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Give a source's role another password, once the database has taken it; its connector starts over.

    Example: `headrace source rotate shop env:SHOP_PASSWORD`
    """
    if not is_reference(password):
        raise UsageError(
            "A password does not belong on a command line.",
            code="SECRET_ON_COMMAND_LINE",
            hint=f"headrace source rotate {name} env:NAME, or file:PATH.",
        )
    rotate_source(open_context(home), name, read_reference(password))
    _done(name, "uses its new password", as_json)


def _done(name: str, what: str, as_json: bool, left: Left | None = None) -> None:
    stays = left.statements if left else ()
    if as_json:
        told = {"left": stays, "why": left.why, "slot": left.slot} if left and stays else {}
        told |= {"apart": left.apart} if left and left.apart else {}
        print_json({"source": name, "done": what, **told})
    else:
        for statement in stays:  # to be pasted: nothing stands before it
            out.print(statement, markup=False, highlight=False, soft_wrap=True)
        out.print(f"[green]✓[/] {name} {what}", highlight=False)


def _described(context: Context, entry: SourceEntry) -> dict[str, Any]:
    seen = next(found for found in lag.measure(context).sources if found.source == entry.name)
    without = settings_of(entry).columns_left_out
    return {
        "source": entry.name,
        "kind": entry.kind,
        "address": entry.address,
        "state": seen.state,
        "reason": seen.reason,
        "remedy": seen.remedy,
        "slot_lag_bytes": seen.slot_lag_bytes,
        "heartbeat_seconds": seen.heartbeat_seconds,
        "created_ms": entry.created_ms,
        "loaded_ms": entry.loaded_ms,
        "tables": {
            str(table.schema.table): {
                "topic": table.topic,
                "epoch": table.epoch,
                "key": list(table.schema.key),
                "key_declared": table.schema.declared,
                "left_out": without.get(table.schema.table, []),
                "columns": [
                    {"name": c.name, "type": c.type.value, "dimensions": c.dimensions, "native": c.native}
                    for c in table.schema.columns
                ],
            }
            for table in entry.tables
        },
    }


def register(app: typer.Typer) -> None:
    """Add the commands of this room to ``app``."""
    tables_room.add_to(commands)
    app.add_typer(commands, name="source")
