"""``headrace source tables``: which tables of a source are captured, and which are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from headrace.cli.ask import DryRun, Yes, ask, print_dry
from headrace.cli.context import HomeOption, open_context, table_id
from headrace.cli.output import JsonFlag, fails_clearly, out, print_hint, print_json
from headrace.cli.show import findings_as_dicts, print_findings, say_to
from headrace.control import spared, tables_check, would_go
from headrace.control import tables as control
from headrace.control.newcomers import named, newcomers
from headrace.control.registry import Registry
from headrace.control.tables_check import TakingIn
from headrace.control.take_out import take_out
from headrace.model.errors import UsageError
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId

__all__ = ["Keys", "add_to", "columns_of", "declared"]

commands = typer.Typer(no_args_is_help=True, help="Tables of a source: take in, decline, take out.")

Name = Annotated[str, typer.Argument(help="The source's name.")]
Tables = Annotated[list[str], typer.Argument(help="Tables, schema.name.")]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        help="Columns of a unique index that identify a table's rows in place of its primary key,"
        " schema.table=column,column; may be repeated.",
    ),
]


@commands.command("list")
@fails_clearly
def list_(name: Name, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """List the tables that are captured, those that are new, and those that are left out.

    Example: `headrace source tables list shop`
    """
    registry = Registry(open_context(home).registry)
    entry = registry.source(name)
    told = {
        "captured": [str(table.schema.table) for table in entry.tables],
        "new": [str(table) for table in newcomers(registry, entry)],
        "left_out": sorted(map(str, named(entry.left_out))),
    }
    if as_json:
        print_json({"source": name, **told})
        return
    for word, tables in told.items():
        for table in tables:
            out.print(f"{word.replace('_', ' '):<9} {table}", highlight=False, markup=False)


@commands.command("add")
@fails_clearly
def add(
    name: Name,
    tables: Tables,
    key: Keys = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            "--sink",
            help="Only this sink mirrors them; may be repeated. [default: each that"
            " mirrors all that the source captures]",
            show_default=False,
        ),
    ] = None,
    skip_unfit: Annotated[
        bool,
        typer.Option(
            "--skip-unfit",
            help="Leave out, by name, tables that cannot be followed or that a sink refuses; take in"
            " the rest.",
        ),
    ] = False,
    wait: Annotated[bool, typer.Option(help="Return only when their rows are in the sinks.")] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be made, or why it is refused; do nothing.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Capture further tables: they get topics and targets, and their rows are read beside the stream.

    Other tables are read and applied meanwhile; the connector starts over once, for some seconds.
    With --dry-run the exit code is 1 when it would be refused.

    Example: `headrace source tables add shop public.coupons`
    """
    context, keys = open_context(home), dict(map(declared, key or ()))
    if dry_run:
        found = tables_check.check(
            context, name, _ids(tables), keys=keys, sinks=sink or (), skip_unfit=skip_unfit
        )
        _would(name, found, as_json)
        return
    left: dict[TableId, Sequence[Finding]] = {}
    run = control.take_in(
        context,
        name,
        _ids(tables),
        keys=keys,
        sinks=sink or (),
        skip_unfit=skip_unfit,
        wait_loaded=wait,
        say=say_to(as_json=as_json),
        skipped=left.update,
    )
    tables = [table for table in tables if table_id(table) not in left]
    told = spared.warnings(left)
    if as_json:
        known = {"findings": findings_as_dicts(told), "left_out": spared.reasons(left)}
        print_json({"source": name, "tables": tables, "run": run, "loaded": wait, **known})
        return
    print_findings(told)
    doing = "captured and loaded" if wait else f"captured; headrace resnapshot wait {run}"
    print_hint(f"{', '.join(tables)}: {doing}", mark="[green]✓[/] ")


@commands.command("decline")
@fails_clearly
def leave_out(name: Name, tables: Tables, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Decline new tables: `lag` tells of them no more. They can be added later all the same.

    Example: `headrace source tables decline shop public.scratch`
    """
    control.leave_out(open_context(home), name, _ids(tables))
    if as_json:
        print_json({"source": name, "left_out": tables})
        return
    print_hint(f"{', '.join(tables)}: left out", mark="[green]✓[/] ")


@commands.command("remove")
@fails_clearly
def remove(
    name: Name,
    tables: Tables,
    purge: Annotated[bool, typer.Option("--purge", help="Remove their targets, too.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Capture tables no longer, such as those that were dropped. Their topics go, with all changes in them.

    Their targets stay, unless --purge is given. On a terminal it asks before, unless --yes is given.
    Other tables are read and applied meanwhile; the connector starts over once, for some seconds.

    Example: `headrace source tables remove shop public.coupons --purge`
    """
    context, ids = open_context(home), _ids(tables)
    if dry_run:
        print_dry({"source": name}, would_go.of_tables(context, name, ids, purge=purge), as_json=as_json)
        return
    held = "topics and targets" if purge else "topics, which hold all their history"
    ask(f"{', '.join(map(str, ids))} with their {held},", yes=yes)
    take_out(context, name, ids, purge=purge, say=say_to(as_json=as_json))
    if as_json:
        print_json({"source": name, "removed": tables, "purged": purge})
        return
    print_hint(f"{', '.join(tables)}: captured no longer", mark="[green]✓[/] ")


def _would(name: str, found: TakingIn, as_json: bool) -> None:
    """Say what `add` would make, and what it would be refused for; then the exit code is 1."""
    fit = all(finding.severity is not Severity.ERROR for finding in found.findings)
    if as_json:
        told = {
            "fit": fit,
            "findings": findings_as_dicts(found.findings),
            "left_out": spared.reasons(found.unfit),
        }
        print_json({"source": name, "dry_run": True, **told, "topics": found.topics, "sinks": found.sinks})
    else:
        print_findings(found.findings)
        if fit:
            where = ", ".join(found.sinks) or "no sink"
            print_hint(f"Would capture {', '.join(found.topics)} into {where}.")
    if not fit:
        raise typer.Exit(1)


def declared(text: str) -> tuple[TableId, tuple[str, ...]]:
    """Return the table and the columns of ``schema.table=column,column``."""
    return columns_of(text, "key", "SOURCE_KEY_INVALID")


def columns_of(text: str, option: str, code: str) -> tuple[TableId, tuple[str, ...]]:
    """Return the table and the columns that an option names; ``code`` is that of the refusal."""
    table, equals, columns = text.rpartition("=")
    if not (table and equals and columns):
        raise UsageError(
            f"“{text}” names no columns of a table.",
            code=code,
            hint=f"Write --{option} schema.table=column,column.",
        )
    return table_id(table), tuple(columns.split(","))


def _ids(tables: list[str]) -> list[TableId]:
    return [table_id(name) for name in tables]


def add_to(source: typer.Typer) -> None:
    """Add the commands of this room to those of the source."""
    source.add_typer(commands, name="tables")
