"""Arguments and options that several commands about sources share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.context import addresses, home_of
from headrace.cli.tables import columns_of
from headrace.config.references import ENVIRONMENT, FILE, is_reference, read_reference
from headrace.config.secrets import mask_text
from headrace.model.errors import UsageError
from headrace.model.finding import Finding
from headrace.model.position import MAX_PARTITIONS

__all__ = [
    "ADDRESS",
    "Heartbeat",
    "LeaveOut",
    "Name",
    "Partitions",
    "Schemas",
    "SkipUnfit",
    "Tables",
    "Threads",
    "Url",
    "left_out",
    "shown_secret",
    "url_of",
]

ADDRESS = (
    "env:NAME or file:PATH[:key] of postgres://user:password@host:port/database; the URL itself when it holds"
    " no password, for others see what is typed. Without it: the local stack's Postgres."
)
Name = Annotated[str, typer.Argument(help="The source's name.")]
Url = Annotated[str | None, typer.Argument(help=ADDRESS, show_default=False)]
Tables = Annotated[
    list[str] | None, typer.Option("--table", "-t", help="A table, schema.name; may be repeated.")
]
Schemas = Annotated[
    list[str] | None,
    typer.Option("--schema", help="All tables of a schema; may be repeated. [default: public]"),
]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option(
        "--leave-out",
        help="Columns that get neither into Kafka nor into any store, schema.table=column,column;"
        " may be repeated.",
    ),
]
Partitions = Annotated[
    int,
    typer.Option(
        min=1,
        max=MAX_PARTITIONS,
        help="Partitions of each table's topic; with several, one table's changes are applied by several"
        " tasks at once.",
    ),
]
SkipUnfit = Annotated[
    bool, typer.Option("--skip-unfit", help="Leave out, by name, what cannot be followed; follow the rest.")
]
Heartbeat = Annotated[int, typer.Option(min=100, max=600_000, help="Grain of freshness, milliseconds.")]
LoadByRun = Annotated[
    int,
    typer.Option(
        min=0,
        help="A table of so many MiB is first loaded by a run: the others stream meanwhile, and what is"
        " broken off goes on where it was.",
    ),
]
Threads = Annotated[int, typer.Option(min=1, max=16, help="Readers of the initial snapshot.")]


def left_out(texts: Sequence[str] | None) -> tuple[tuple[str, str, str], ...]:
    """Return what ``--leave-out`` names, as schema, table and column.

    Raises:
        UsageError: When it names nothing (``SOURCE_COLUMN_INVALID``).
    """
    named = (columns_of(text, "leave-out", "SOURCE_COLUMN_INVALID") for text in texts or ())
    return tuple((table.schema, table.name, column) for table, columns in named for column in columns)


def shown_secret(text: str | None) -> list[Finding]:
    """Return a warning for a password that was written on a command line."""
    if text is None or is_reference(text) or mask_text(text) == text:
        return []
    return [
        Finding.warning(
            "SECRET_ON_COMMAND_LINE",
            "A password was written on the command line: others on this machine may have seen it, and the"
            " shell remembers it.",
            f"Next time write {ENVIRONMENT}NAME or {FILE}PATH, where the URL is, in its place.",
        )
    ]


def url_of(text: str | None, home: Path | None) -> str:
    """Return a database's address: what is given, what a reference leads to, or the local stack's.

    Raises:
        UsageError: When there is none (``SOURCE_URL_MISSING``).
    """
    if text is None:
        found = addresses(home_of(home)).get("postgres_dsn")
        if found is None:
            raise UsageError(
                "No database was named.",
                code="SOURCE_URL_MISSING",
                hint="Give its URL, or set HEADRACE_POSTGRES_DSN.",
            )
        return found
    return read_reference(text) if is_reference(text) else text
