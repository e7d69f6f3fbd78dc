"""Sweeps: a store removes rows of a table by their versions, between two batches of the sink's own query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.config.pipeline import Swept
from headrace.config.request import Request
from headrace.control.context import Context
from headrace.control.desk import ask
from headrace.control.registry import Registry, SinkEntry, SourceTableEntry
from headrace.control.rest import wait_settled
from headrace.control.runs.passed import reread
from headrace.control.runs.repository import active, topics_of
from headrace.control.verdicts import UNTIL_READ, standing
from headrace.model.errors import SinkError
from headrace.model.position import Position

__all__ = ["ROWS_BEHIND", "Found", "ask_sweep", "being_read", "marks_to_pass", "sweep_new_sink"]

ROWS_BEHIND = "SWEEP_ROWS_BEHIND"
_ANSWER_S = 600.0


@dataclass(frozen=True, slots=True)
class Found:
    """What a sink's query has found and done.

    Args:
        older: Rows older than the marks.
        total: All rows of the table.
        removed: How many went.
        refused: Whether more than the limit would have gone.
        settled: By partition: the first offset of the topic that the sink had not applied at that moment.
    """

    older: int
    total: int
    removed: int
    refused: bool
    settled: tuple[int, ...]


def ask_sweep(
    context: Context,
    sink: str,
    table: SourceTableEntry,
    marks: Sequence[int],
    limit: tuple[int, float] | None = None,
    heed: Callable[[], object] = lambda: None,
) -> Found:
    """Have the sink's query remove rows older than the marks, by partition; return what it found and did.

    Args:
        context: The installation.
        sink: The sink's name.
        table: The table.
        marks: Per partition: the first offset that stays.
        limit: Rows and share of the table's rows; when more than both would go, none goes.
        heed: Called while the query has not come to it; raises when nobody waits for it any more.

    Raises:
        SinkError: When the query does not run, or could not do it; or when rows would go that are not gone:
            those whose newer change the store has refused (``SWEEP_ROWS_BEHIND``). None goes then.
    """
    name = str(table.schema.table)
    versions = [Position(table.epoch, at, partition).version for partition, at in enumerate(marks)]
    request = Request(sweep={name: versions}, sweep_limit=limit)
    told = ask(context, sink, request, timeout=_ANSWER_S, heed=heed)["swept"][name]
    settled, kept = tuple(told["settled"]), told["kept"]
    if kept:
        raise SinkError(
            f"{sink} has refused the newest change of {kept:,} of its rows of {name}: a sweep would remove"
            " what it still has of them.",
            code=ROWS_BEHIND,
            hint=f"headrace dlq list --sink {sink} --state all  # have them replayed, or read the table anew",
            table=table.schema.table,
        )
    return Found(told["older"], told["total"], told["removed"], told["refused"], settled)


def marks_to_pass(registry: Registry, source: str, tables: Sequence[SourceTableEntry]) -> dict[str, Swept]:
    """Return topic → the last run that has read its table whole, for sinks that begin before it.

    One without marks was the table's first load: nothing stands before it.
    """
    passed = reread(registry, source)
    return {
        table.topic: Swept(marks=tuple(marks), ends=tuple(ends))
        for table in tables
        if table.topic in passed
        for marks, ends in (passed[table.topic],)
        if any(marks)
    }


def being_read(registry: Registry, source: str) -> set[str]:
    """Return the topics of tables that a run is at, and of which it may yet find out that rows are gone.

    A first load finds none.
    """
    first = {found.topic for found in standing(registry, source) if found.code in UNTIL_READ}
    unread = (run for run in active(registry, source) if not run.plan.get("ends"))
    return {topic for run in unread for topic in topics_of(run)} - first


def sweep_new_sink(
    context: Context,
    registry: Registry,
    entry: SinkEntry,
    tables: Sequence[SourceTableEntry],
    say: Callable[[str], None],
) -> None:
    """Remove rows that the topics still tell of, though a run has shown that they are gone.

    Until that is done, the tables count as incomplete: what is broken off leaves nothing that looks whole.
    """
    # Such a run does not sweep a sink that came after it. Before the marks, for it may end in between.
    unread = being_read(registry, entry.source)
    passed = marks_to_pass(registry, entry.source, tables)
    chosen = [table for table in tables if table.topic in passed]
    if not chosen:
        return
    ends = {(t.topic, n): end for t in chosen for n, end in enumerate(passed[t.topic].ends)}
    wait_settled(context, entry.name, ends, say=say)
    for table in chosen:
        try:
            ask_sweep(context, entry.name, table, passed[table.topic].marks)
        except SinkError as error:
            if error.code != ROWS_BEHIND:
                raise
            say(f"{error.message} {error.hint}")  # and status, for as long as it counts as incomplete
            continue
        if table.topic not in unread:
            # What was found lacking since the sink was noted is none of this.
            noted_ms = entry.incomplete_ms.get(table.topic, 0)
            registry.completed(entry.name, table.topic, noted_ms + 1)
