"""The live page: one table, each table × sink with rows, changes applied, freshness and lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.control.lag import LagReport, State, TableLag
from headrace.demo.ledger import Tally

__all__ = ["Look", "line", "page"]

_WIDE = 118
"""Columns of a terminal that fit everything in one line per table; a narrower one gets two."""

_COLOURS = {
    State.STREAMING: "green",
    State.CATCHING_UP: "yellow",
    State.SNAPSHOTTING: "cyan",
    State.SETUP: "cyan",
    State.PAUSED: "yellow",
    State.DEGRADED: "red",
    State.FAILED: "bold red",
    State.RESYNC_REQUIRED: "bold red",
}
_NONE = "–"


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to see at one moment.

    Args:
        seconds: Since the command began.
        phase: What is going on, in a few words.
        tables: In the order of the page.
        sinks: In the order of the page.
        report: Lag as the control plane judges it; None before there is anything to judge.
        original: Table → rows in Postgres.
        rows: ``(sink, table)`` → rows a reader of the store sees.
        tally: What the workload did.
        latency_ms: Sink → p50, p99 of the markers.
        first_rows: Sink → seconds from the command's start until it showed a row.
    """

    seconds: float
    phase: str
    tables: Sequence[str]
    sinks: Sequence[str]
    report: LagReport | None = None
    original: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[tuple[str, str], int] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    latency_ms: Mapping[str, Mapping[str, float | int | None]] = field(default_factory=dict)
    first_rows: Mapping[str, float] = field(default_factory=dict)

    def lag(self, sink: str, table: str) -> TableLag | None:
        """Return the control plane's word on one table of one sink."""
        found = self.report.tables if self.report else ()
        return next((t for t in found if t.sink == sink and t.table.partition(".")[2] == table), None)


def page(look: Look, width: int) -> RenderableType:
    """Return the page for a terminal of ``width`` columns."""
    wide = width >= _WIDE
    table = Table(box=None, padding=(0, 1, 0, 0), collapse_padding=True, pad_edge=False)
    table.add_column("table", style="bold")
    table.add_column("Postgres", justify="right")
    for sink in look.sinks:
        table.add_column(_bar(wide))
        if wide:
            for title in (sink, "applied", "fresh", "lag"):
                table.add_column(title, justify="right")
        else:
            table.add_column(f"{sink}\napplied", justify="right")
            table.add_column("lag\nfresh", justify="right")
    for name in look.tables:
        table.add_row(name, _number(look.original.get(name)), *_cells(look, (name,), wide))
    table.add_row("", _number(sum(look.original.values())), *_cells(look, look.tables, wide), style="bold")
    return Group(_headline(look), Text(), table, Text(), *_footer(look))


def line(look: Look) -> str:
    """Return the same in one line of plain text, for logs."""
    parts = [f"{look.seconds:6.1f} s", look.phase, f"{look.tally.changes:,} changes"]
    for sink in look.sinks:
        lags = _lags(look, sink)
        rows = sum(count for (name, _), count in look.rows.items() if name == sink)
        state = _worst(lags)
        parts.append(
            f"{sink} {rows:,} rows, {state.value if state else 'not yet'}, "
            f"lag {_lag_sum(lags)}, fresh {_age(lags)}"
        )
    return " | ".join(parts)


def _headline(look: Look) -> Text:
    text = Text.assemble((f"{look.seconds:5.0f} s  ", "dim"), (look.phase, "bold"))
    for source in look.report.sources if look.report else ():
        held = source.slot_lag_bytes
        text.append(f"   {source.source}: {source.state.value}", style=_COLOURS[source.state])
        text.append(f"   WAL held {_NONE if held is None else f'{held / 1_048_576:.1f} MiB'}", style="dim")
    return text


def _footer(look: Look) -> list[Text]:
    tally = look.tally
    done = Text("workload  ")
    done.append(
        f"{tally.changes:,} changes in {tally.transactions:,} transactions: {tally.inserts:,} inserts, "
        f"{tally.updates:,} updates, {tally.deletes:,} deletes, {tally.key_changes:,} key changes, "
        f"{tally.rolled_back:,} rolled back, largest {tally.largest:,}"
    )
    lines = [done]
    for sink in look.sinks:
        measured = look.latency_ms.get(sink, {})
        text = Text(f"{sink:<9} ")
        text.append(f"commit → readable p50 {_ms(measured.get('p50'))}, p99 {_ms(measured.get('p99'))}")
        if sink in look.first_rows:
            text.append(f"   first row after {look.first_rows[sink]:.1f} s", style="dim")
        trouble = next((t for t in _lags(look, sink) if t.reason and t.state not in _CALM), None)
        if trouble:
            text.append(f"   {trouble.table}: {trouble.reason}", style=_COLOURS[trouble.state])
        lines.append(text)
    return lines


_CALM = (State.STREAMING, State.SNAPSHOTTING, State.SETUP)


def _cells(look: Look, tables: Sequence[str], wide: bool) -> list[Text]:
    """Return the cells of one table, or of the sum of several, in every sink."""
    cells: list[Text] = []
    for sink in look.sinks:
        lags = [lag for lag in (look.lag(sink, table) for table in tables) if lag is not None]
        counts = [count for (name, table), count in look.rows.items() if name == sink and table in tables]
        state = _worst(lags)
        rows = Text(_number(sum(counts) if counts else None))
        applied = Text(_number(sum(lag.applied for lag in lags) if lags else None), style="dim")
        fresh = Text(_age(lags), style="dim")
        lag = Text(_lag_sum(lags), style=_COLOURS[state] if state else "dim")
        cells.append(_bar(wide))
        if wide:
            cells += [rows, applied, fresh, lag]
        else:
            cells += [Text("\n").join((rows, applied)), Text("\n").join((lag, fresh))]
    return cells


def _bar(wide: bool) -> Text:
    return Text("│" if wide else "│\n│", style="dim")


def _lags(look: Look, sink: str) -> list[TableLag]:
    return [lag for lag in (look.lag(sink, table) for table in look.tables) if lag is not None]


def _worst(lags: Sequence[TableLag]) -> State | None:
    order = list(_COLOURS)
    return max((lag.state for lag in lags), key=order.index, default=None)


def _lag_sum(lags: Sequence[TableLag]) -> str:
    known = [lag.lag_records for lag in lags if lag.lag_records is not None]
    return _number(sum(known) if known else None)


def _age(lags: Sequence[TableLag]) -> str:
    known = [lag.freshness_seconds for lag in lags if lag.freshness_seconds is not None]
    return f"{max(known):.1f}s" if known else _NONE


def _number(value: int | None) -> str:
    return _NONE if value is None else f"{value:,}"


def _ms(value: float | int | None) -> str:
    return _NONE if value is None else f"{value:,.0f} ms"
