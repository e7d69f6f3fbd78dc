"""``headrace journal``: what was done, and what became of the tables, for people who ask later."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

import typer

from headrace.cli.context import HomeOption, open_context
from headrace.cli.output import JsonFlag, fails_clearly, out, print_json
from headrace.cli.show import grid
from headrace.control.context import Context
from headrace.control.names import known_sink, known_source
from headrace.control.registry import JournalEntry, Registry
from headrace.model.errors import UsageError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("journal")
    @fails_clearly
    def journal(
        source: Annotated[str | None, typer.Option(help="Only what concerns this source.")] = None,
        sink: Annotated[str | None, typer.Option(help="Only what concerns this sink.")] = None,
        last: Annotated[int, typer.Option("--last", "-n", min=1, help="How many lines, the newest.")] = 50,
        home: HomeOption = None,
        as_json: JsonFlag = False,
    ) -> None:
        """List what happened: sources and sinks added, columns that changed, resnapshots, take-overs.

        Example: `headrace journal --source shop`
        """
        context = open_context(home)
        found = Registry(context.registry).journal(_subject(context, source, sink), limit=last)
        if as_json:
            print_json([_described(entry) for entry in found])
            return
        cells = [(_time(entry), entry.subject, entry.event, _detail(entry)) for entry in found]
        out.print(grid(("when", "what", "event", "detail"), cells))


def _subject(context: Context, source: str | None, sink: str | None) -> str | None:
    """Return of what to list the lines; None for all."""
    if source and sink:
        raise UsageError(
            "--source and --sink do not go together: a line is about one of them.",
            code="JOURNAL_SOURCE_OR_SINK",
            hint=f"headrace journal --sink {sink}",
        )
    registry = Registry(context.registry)
    if source:
        return f"source {known_source(registry, source)}"
    return f"sink {known_sink(context, registry, sink)}" if sink else None


def _described(entry: JournalEntry) -> dict[str, object]:
    return {"at_ms": entry.at_ms, "subject": entry.subject, "event": entry.event, "detail": entry.detail}


def _time(entry: JournalEntry) -> str:
    return datetime.fromtimestamp(entry.at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _detail(entry: JournalEntry) -> str:
    return " ".join(
        f"{name}={_words(value)}" for name, value in entry.detail.items() if value not in ([], "")
    )


def _words(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
