"""How findings, states, sizes and ages look in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headrace.cli.output import err, out, print_hint
from headrace.control.verdicts import State
from headrace.model.finding import Finding

__all__ = [
    "age",
    "findings_as_dicts",
    "grid",
    "number",
    "print_findings",
    "print_title",
    "say_to",
    "size",
    "state_text",
]

_COLOURS = {
    State.STREAMING: "green",
    State.CATCHING_UP: "yellow",
    State.SNAPSHOTTING: "cyan",
    State.SETUP: "cyan",
    State.PAUSED: "blue",
    State.DEGRADED: "yellow",
    State.FAILED: "red",
    State.RESYNC_REQUIRED: "bold red",
}
_WIDEST = 10_000
_MARKS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "error": "[red]✗[/]"}


def state_text(state: State) -> Text:
    """Return the state's word in its colour."""
    return Text(state.value, style=_COLOURS[state])


def print_title(name: str, state: State, what: str) -> None:
    """Print of what the lines below it tell, and how it does."""
    out.print(Text.assemble((name, "bold"), "  ", state_text(state), f"  {what}"), highlight=False)


def age(seconds: float | None) -> str:
    """Return an age for people; ``–`` when it is not known."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"


def size(count: int | None) -> str:
    """Return a number of bytes for people; ``–`` when it is not known."""
    if count is None:
        return "–"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def number(value: int | None) -> str:
    """Return a number for people; ``–`` when it is not known."""
    return "–" if value is None else f"{value:,}"


def grid(
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    spare: Sequence[str] = (),
    width: int = 0,
    foreign: bool = False,
) -> Table:
    """Return a table; a heading that ends in ``>`` is right-aligned.

    A cell is told as it stands, for it may hold what people have written; one in colours is a :class:`Text`.

    Only the last column is ever broken over several lines, unless it is right-aligned; of a ``foreign``
    table, whose content we do not know, any may be. ``spare`` names columns to leave out, in this order,
    while the table is wider than ``width``.
    """
    cells = [[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows]
    left_out: list[str] = []
    while True:
        kept = [n for n, heading in enumerate(headings) if heading.rstrip(">") not in left_out]
        table = _table([headings[n] for n in kept], [[row[n] for n in kept] for row in cells], foreign)
        if not width or len(left_out) == len(spare):
            return table
        if Measurement.get(out, out.options.update(width=_WIDEST), table).maximum <= width:
            return table
        left_out = [*spare[: len(left_out) + 1]]


def _table(headings: Sequence[str], rows: Iterable[Sequence[Text]], foreign: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        breaks = foreign or (heading is headings[-1] and not heading.endswith(">"))
        table.add_column(
            Text(heading.rstrip(">")),
            justify="right" if heading.endswith(">") else "left",
            overflow="fold" if breaks else "ellipsis",
            no_wrap=not breaks,
        )
    for row in rows:
        table.add_row(*row)
    return table


def print_findings(findings: Iterable[Finding], *, quiet_ok: bool = False) -> None:
    """Print findings, each with its code and, below, its hint."""
    for finding in findings:
        level = finding.severity.value
        if quiet_ok and level == "ok":
            continue
        out.print(
            f"{_MARKS[level]} {escape(finding.message)} [dim]{finding.code}[/]",
            highlight=False,
            soft_wrap=True,
        )
        if finding.hint:
            print_hint(f"    {finding.hint}", style="dim")


def findings_as_dicts(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Return findings JSON-ready; one about a table names it."""
    return [
        {"severity": f.severity.value, "code": f.code, "message": f.message, "hint": f.hint}
        | ({"table": str(f.table)} if f.table is not None else {})
        for f in findings
    ]


class say_to:  # noqa: N801 - reads as a verb where it is used
    """Tells steps on standard error, unless JSON was asked for."""

    def __init__(self, *, as_json: bool) -> None:
        self._silent = as_json

    def __call__(self, step: str) -> None:
        if not self._silent:
            print_hint(step, mark="[dim]·[/] ", to=err)
