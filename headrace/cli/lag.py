"""``headrace lag``: how far every table of every sink is, and what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from headrace.cli.context import HomeOption, open_context
from headrace.cli.given import refuse_unused
from headrace.cli.output import JsonFlag, fails_clearly, out, print_error, print_hint, print_json
from headrace.cli.reasons import Trouble, lines_of
from headrace.cli.show import age, grid, number, size, state_text
from headrace.control.kafka import Kafka
from headrace.control.lag import LagReport, measure
from headrace.control.names import refuse_without_sources
from headrace.model.errors import HeadraceError, SinkError, UsageError

__all__ = ["register", "render"]

_WAIT_EVERY_S = 0.2


def render(report: LagReport) -> RenderableType:
    """Return the report as tables for a terminal."""
    sources = grid(
        ("source", "state", "slot lag>", "heartbeat>", "reason"),
        [
            (
                s.source,
                state_text(s.state),
                size(s.slot_lag_bytes),
                age(s.heartbeat_seconds),
                s.reason,
            )
            for s in report.sources
        ],
    )
    sinks = grid(
        ("sink", "state", "latency p50>", "p99>", "reason"),
        [
            (
                s.sink,
                state_text(s.state),
                _milliseconds(s.latency_ms.get("p50")),
                _milliseconds(s.latency_ms.get("p99")),
                s.reason,
            )
            for s in report.sinks
        ],
    )
    tables = grid(
        ("table", "sink", "state", "lag records>", "freshness>", "applied>", "rejected>", "behind>"),
        [
            (
                t.table,
                t.sink,
                state_text(t.state),
                number(t.lag_records),
                age(t.freshness_seconds),
                number(t.applied),
                number(t.rejected),
                number(t.behind),
            )
            for t in report.tables
        ],
        spare=("applied", *(name for name in ("rejected", "behind") if not any(_all(report, name)))),
        width=out.width,
    )
    since = f" as of {age(report.in_sync_age_seconds)} ago"
    verdict = f"[green]in sync[/]{since}" if report.in_sync else "[yellow]not in sync[/]"
    return Group(sources, "", sinks, "", tables, "", verdict)


def _print(report: LagReport, *, as_json: bool) -> None:
    """Print the report and, after its tables, what is to be pasted: a table would break its lines."""
    if as_json:
        print_json(report.as_dict())
        return
    out.print(render(report))
    troubles = [Trouble(t.table, t.sink, t.state, t.reason, t.remedy) for t in report.tables]
    told = [("remedy", s.remedy) for s in report.sources]
    told += lines_of(troubles, {s.reason for s in report.sources})
    told += [("remedy", s.remedy) for s in report.sinks]
    for word, text in dict.fromkeys(line for line in told if line[1]):
        print_hint(text, mark=f"[yellow]{word}:[/] ")
    for note in (note for source in report.sources for note in source.notes):
        ways = (
            (f"to take in: {note.remedy}", f"to decline: {note.decline}") if note.decline else (note.remedy,)
        )
        for line in (note.message, *ways):
            print_hint(line, mark="[cyan]note:[/] ")


def _print_anew(report: LagReport, *, as_json: bool) -> None:
    """Print another report: in a terminal in the place of the one before."""
    with out:  # all of it at once, else it flickers
        if out.is_terminal and not as_json:
            out.clear()
        _print(report, as_json=as_json)


def _all(report: LagReport, name: str) -> list[int | None]:
    return [getattr(table, name) for table in report.tables]


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"


def _await(look: Callable[[], LagReport], seconds: float) -> tuple[LagReport, bool]:
    """Look until every store shows what is committed by now; return the last look, and whether they do.

    Raises:
        UsageError: It is asked of what there is not; waiting would not help.
        HeadraceError: The last look had no answer.
    """
    asked = time.monotonic()
    while True:
        began = time.monotonic()
        try:
            report = look()
        except UsageError:
            raise
        except HeadraceError:
            if time.monotonic() - asked >= seconds:
                raise
        else:
            if (shown := report.shows(began - asked)) or time.monotonic() - asked >= seconds:
                return report, shown
        time.sleep(_WAIT_EVERY_S)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("lag")
    @fails_clearly
    def lag(
        ctx: typer.Context,
        watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again until interrupted.")] = False,
        interval: Annotated[
            float, typer.Option(min=0.5, help="With --watch: seconds between two looks.")
        ] = 1.0,
        wait: Annotated[
            float | None,
            typer.Option(
                min=0,
                metavar="SECONDS",
                help="Wait up to so long until it is proven that every store shows all that was committed"
                " before this command; fail when it is not.",
            ),
        ] = None,
        home: HomeOption = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Tell slot lag, consumer lag, latency and freshness, and one word per table and sink.

        Slot lag: bytes of WAL the database keeps. Lag records: offsets a sink has not settled.
        Latency: commit → applied, per change. Freshness: the sink shows the table as of so long ago.

        The exit code is 1 when anything is degraded, failed or resync_required; catching up is no error.

        Example: `headrace lag --watch`; `headrace lag --wait 30 && run-what-reads-the-index`
        """
        if watch and wait is not None:
            raise UsageError(
                "--watch and --wait do not go together.",
                code="LAG_WATCH_OR_WAIT",
                hint="headrace lag --wait 30",
            )
        if not watch:
            hint = "headrace lag --watch --interval 5"
            refuse_unused(ctx, "interval", where="without --watch", hint=hint)
        context = open_context(home)
        refuse_without_sources(context)
        look = partial(measure, context, Kafka(context.kafka_bootstrap))
        if wait is not None:
            report, shown = _await(look, wait)
            _print(report, as_json=as_json)
            if not shown:
                raise SinkError(
                    f"After {wait:g} s it is not proven that every store shows what was committed before.",
                    code="LAG_NOT_IN_SYNC",
                    hint="headrace lag",
                )
            return
        report = look()
        _print(report, as_json=as_json)
        if not watch and not report.is_well:
            raise typer.Exit(1)
        while watch:
            time.sleep(interval)
            try:
                report = look()
            except HeadraceError as error:  # one lost answer; whoever watches wants to see what comes then
                print_error(error, as_json=as_json)
            else:
                _print_anew(report, as_json=as_json)
