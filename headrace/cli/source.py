"""``headrace source``: the database that is followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from headrace.cli import remove as removal
from headrace.cli import tables as tables_room
from headrace.cli.context import HomeOption, open_context, table_id
from headrace.cli.given import refuse_unused
from headrace.cli.interrupted import telling
from headrace.cli.output import JsonFlag, fails_clearly, out, print_hint, print_json
from headrace.cli.show import (
    age,
    findings_as_dicts,
    grid,
    print_findings,
    print_title,
    say_to,
    size,
    state_text,
)
from headrace.cli.source_facts import facts_of
from headrace.cli.source_options import (
    ADDRESS,
    Heartbeat,
    LeaveOut,
    LoadByRun,
    Name,
    Partitions,
    Schemas,
    SkipUnfit,
    Tables,
    Threads,
    Url,
    left_out,
    shown_secret,
    url_of,
)
from headrace.cli.tables import Keys, declared
from headrace.config.references import is_reference, read_reference
from headrace.config.source import NAME, SourceSettings
from headrace.control import lag, source, source_check, spared
from headrace.control import refresh as following
from headrace.control.begun import named, noted
from headrace.control.check_again import check_again
from headrace.control.columns import changes
from headrace.control.registry import Registry
from headrace.control.rotate import rotate_source
from headrace.model.errors import UsageError
from headrace.model.finding import Finding, Severity
from headrace.model.pasted import command
from headrace.model.schema import TableId

__all__ = ["register"]

_OF_A_NEW_ONE = (
    "table", "schema", "key", "leave_out", "name", "partitions", "snapshot_threads", "load_by_run_mib"
)  # fmt: skip
"""Parameters of `source check` that say how a source would be added."""

commands = typer.Typer(no_args_is_help=True, help="The source database: check, add, list, show, remove.")


@commands.command("check")
@fails_clearly
def check(
    ctx: typer.Context,
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
    load_by_run_mib: LoadByRun = 512,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what speaks for or against following a database, or one that is a source. Changes nothing.

    Example: `headrace source check postgres://me@db.example/shop --name shop --table public.orders`
    """
    if url and NAME.fullmatch(url):
        context = open_context(home)
        Registry(context.registry).source(url)  # a name that is mistyped is the nearest mistake
        adding = ["headrace", "source", "tables", "add", url, *table, "--dry-run"] if table else []
        hint = command(*(adding or ("headrace", "source", "check", url)))
        refuse_unused(ctx, *_OF_A_NEW_ONE, where=f"for {url}, which is a source already", hint=hint)
        findings = check_again(context, url)
    else:
        findings = source_check.check(
            url_of(url, home),
            tables=[table_id(text) for text in table or ()],
            schemas=schema or ["public"],
            keys=dict(map(declared, key or ())),
            settings=SourceSettings(
                partitions=partitions,
                snapshot_threads=snapshot_threads,
                load_by_run_mib=load_by_run_mib,
                leave_out=left_out(leave_out),
            ),
            place=(open_context(home, begins=True), name) if name else None,
        )
    findings = [*findings, *shown_secret(url)]
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
    heartbeat_ms: Heartbeat = 1000,
    snapshot_threads: Threads = 1,
    load_by_run_mib: LoadByRun = 512,
    retention_ms: Annotated[
        int,
        typer.Option(
            min=-1, help="How long topics keep changes; -1: for ever, so that later sinks can load."
        ),
    ] = -1,
    partitions: Partitions = 1,
    skip_unfit: SkipUnfit = False,
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

    Example: `headrace source add shop env:SHOP_URL --schema public`
    """
    context = open_context(home, begins=True)
    warnings, left = shown_secret(url), dict[TableId, Sequence[Finding]]()

    def warn(finding: Finding) -> None:
        warnings.append(finding)
        if not as_json:
            print_findings([finding])

    if not as_json:
        print_findings(warnings)
    with telling(context, "source", name, as_json=as_json):
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
            warn=warn,
            skipped=left.update,
        )
    if as_json:
        told = findings_as_dicts([*warnings, *spared.warnings(left)])
        print_json({**facts_of(context, entry), "findings": told, "left_out": spared.reasons(left)})
    else:
        print_findings(spared.warnings(left))
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
    registry = Registry(context.registry)
    entries = [*registry.sources(), *(begun.entry for begun in noted(registry).values())]
    report = lag.measure(context)
    if as_json:
        print_json([facts_of(context, entry, report) for entry in entries])
        return
    states = {entry.name: lag.coming(entry.name) for entry in entries}
    states |= {found.source: found for found in report.sources}
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
    entry = named(Registry(context.registry), name)
    described = facts_of(context, entry)
    if as_json:
        print_json(described)
        return
    print_title(name, described["state"], entry.address)
    for label in ("reason", "remedy"):
        if described[label]:
            print_hint(f"{label}: {described[label]}")
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
        said = findings_as_dicts(found)
        print_json({"source": name, "done": "paused", "findings": said, "warnings": said})
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


def _done(name: str, what: str, as_json: bool) -> None:
    if as_json:
        print_json({"source": name, "done": what})
    else:
        out.print(f"[green]✓[/] {name} {what}", highlight=False)


def register(app: typer.Typer) -> None:
    """Add the commands of this room to ``app``."""
    commands.command("remove")(removal.source)
    tables_room.add_to(commands)
    app.add_typer(commands, name="source")
