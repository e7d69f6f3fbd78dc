"""The end of the demo: every row compared in every store, as a table for people and one line for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.demo.compare import SHOWN_KEYS, Comparison, Expected, compare
from headrace.demo.ledger import Tally
from headrace.demo.original import Original
from headrace.demo.probe import Latencies
from headrace.demo.stores.base import Store
from headrace.model.errors import SinkError
from headrace.model.schema import TableSchema

__all__ = ["Verdict", "compare_all", "print_comparisons"]


@dataclass(slots=True)
class Verdict:
    """What the demo found.

    Args:
        comparisons: One per table × store.
        drained: Whether lag fell to zero before the comparison; when not, ``behind`` says why.
        first_rows: Store → seconds from the command's start until it showed a row.
        tally: What the workload did.
        markers: How many rows the measuring itself committed, in addition.
        latencies: Store → commit → readable of the markers.
        engine_latency_ms: Store → what the engine itself measured, commit → applied.
        seconds: From the command's start to the end of the comparison.
        peak_rss_mib: Largest sum of the memory of all processes.
        memory_mib: Process → its own peak.
    """

    comparisons: list[Comparison] = field(default_factory=list)
    drained: bool = False
    behind: str = ""
    first_rows: dict[str, float] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    markers: int = 0
    latencies: dict[str, Latencies] = field(default_factory=dict)
    engine_latency_ms: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    peak_rss_mib: float = 0.0
    memory_mib: dict[str, float] = field(default_factory=dict)

    @property
    def in_sync(self) -> bool:
        """Return whether lag fell to zero and every row of every table is equal in every store."""
        return self.drained and bool(self.comparisons) and all(c.equal for c in self.comparisons)

    def line(self) -> dict[str, Any]:
        """Return the object that the last line of the demo's output is."""
        return {
            "in_sync": self.in_sync,
            "seconds_to_first_row": {name: round(s, 1) for name, s in self.first_rows.items()},
            "rows": {c.table: c.expected for c in self.comparisons},
            "changes": self.tally.changes + self.markers,
            "latency_ms": {
                name: {rank: found.as_dict()[rank] for rank in ("p50", "p99")}
                for name, found in self.latencies.items()
            },
            "seconds": round(self.seconds, 1),
            "peak_rss_mib": self.peak_rss_mib,
        }

    def details(self) -> dict[str, Any]:
        """Return the same with everything it was made from."""
        return {
            **self.line(),
            "drained": self.drained,
            "behind": self.behind,
            "workload": self.tally.as_dict(),
            "markers": {
                name: {**found.as_dict(), "unseen": found.unseen} for name, found in self.latencies.items()
            },
            "engine_latency_ms": self.engine_latency_ms,
            "memory_mib": self.memory_mib,
            "comparisons": [comparison.as_dict() for comparison in self.comparisons],
        }


def compare_all(dsn: str, stores: Sequence[Store], order: Sequence[str]) -> list[Comparison]:
    """Compare every table of the shop with every store, by content, in both directions.

    Postgres is read once, as of one moment; nobody may be writing.

    Raises:
        SinkError: When a store cannot be read (``DEMO_STORE_UNREADABLE``).
    """
    comparisons: list[Comparison] = []
    with Original.open(dsn) as original:
        schemas = {schema.table.name: schema for schema in original.tables()}
        for name in sorted(
            schemas, key=lambda name: (order.index(name) if name in order else len(order), name)
        ):
            schema = schemas[name]
            expected = Expected(schema, original.rows(schema))
            comparisons += [_compared(store, schema, expected) for store in stores]
    return comparisons


def _compared(store: Store, schema: TableSchema, expected: Expected) -> Comparison:
    try:
        return compare(store.name, expected, store.rows(schema), lambda key: store.address(schema, key))
    except Exception as error:
        raise SinkError(
            f"{store.name} could not be read for the comparison of {schema.table.name}: {error}",
            code="DEMO_STORE_UNREADABLE",
            hint="See `headrace status`.",
        ) from error


def print_comparisons(console: Console, comparisons: Sequence[Comparison]) -> None:
    """Print rows, missing, extra and different per table × store, and the keys of what is not equal."""
    stores = list(dict.fromkeys(c.store for c in comparisons))
    by_table: dict[str, dict[str, Comparison]] = {}
    for comparison in comparisons:
        by_table.setdefault(comparison.table, {})[comparison.store] = comparison
    table = Table(
        title="every row, by content, in both directions",
        caption="" if all(c.equal for c in comparisons) else "differs: missing/extra/different",
        title_justify="left",
        caption_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("table", style="bold")
    table.add_column("Postgres", justify="right")
    for store in stores:
        table.add_column(store, justify="right")
        table.add_column("differs", justify="right")
    for name, found in by_table.items():
        cells: list[Text] = []
        for store in stores:
            c = found[store]
            colour = "green" if c.equal else "bold red"
            counts = f"{len(c.missing)}/{len(c.extra)}/{len(c.different)}"
            cells += [Text(f"{c.found:,}"), Text("–" if c.equal else counts, style=colour)]
        table.add_row(name, f"{next(iter(found.values())).expected:,}", *cells)
    console.print(table)
    for comparison in comparisons:
        for text in _differences(comparison):
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def _differences(comparison: Comparison) -> list[str]:
    where = f"{comparison.store} {comparison.table}"
    kinds: Mapping[str, Sequence[str]] = {
        "missing": comparison.missing,
        "extra": comparison.extra,
        "different": [f"{key} ({', '.join(columns)})" for key, columns in comparison.different.items()],
    }
    lines = []
    for kind, keys in kinds.items():
        if keys:
            more = f" and {len(keys) - SHOWN_KEYS:,} more" if len(keys) > SHOWN_KEYS else ""
            lines.append(f"{where}: {kind}: {', '.join(keys[:SHOWN_KEYS])}{more}")
    return lines
