"""Resnapshot by mark and sweep: read every row anew beside the stream, then remove what was not seen.

The mark is the end offset S of each partition of a table's topic. Every live row gets a newer record at
or above its partition's S, from the snapshot or from the stream; when a sink has settled past the snapshot's
end, a row still stored below S is gone from the source. Readers never see a gap, and other tables keep
streaming.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.desk import leave
from headrace.control.kafka import Kafka
from headrace.control.progress import wait_settled
from headrace.control.registry import (
    Registry,
    ResnapshotEntry,
    SinkEntry,
    SourceEntry,
    SourceTableEntry,
    now_ms,
)
from headrace.control.sink import open_sink
from headrace.control.snapshot import SnapshotState, incremental
from headrace.model.errors import SourceError, UsageError
from headrace.model.position import Position
from headrace.model.schema import TableId
from spark_jobs.desk import Request
from spark_jobs.held import load_holds

__all__ = ["Plan", "Swept", "plan", "resnapshot"]

Say = Callable[[str], None]
_PICKED_UP_S = 60.0
_LARGE_SHARE = 0.2
_LARGE_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What a resnapshot would do.

    Args:
        source: The source.
        tables: Table → end offset S of each partition of its topic now.
        sinks: Sinks that will be swept.
        rows: About how many rows will be read, by the database's statistics.
    """

    source: str
    tables: dict[str, list[int]]
    sinks: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Swept:
    """How many rows a sink held that the source no longer has."""

    sink: str
    table: str
    removed: int


def plan(context: Context, name: str, *, tables: Sequence[TableId] = (), sinks: Sequence[str] = ()) -> Plan:
    """Return what :func:`resnapshot` would do; changes nothing."""
    registry = Registry(context.registry)
    entry = registry.source(name)
    chosen = _chosen(entry, tables)
    return Plan(
        source=name,
        tables={str(t.schema.table): _marks(Kafka(context.kafka_bootstrap), entry, t) for t in chosen},
        sinks=tuple(found.name for found in _sinks(registry, name, sinks)),
        rows=sum(source_of(context, entry).estimate_rows([t.schema.table for t in chosen]).values()),
    )


def resnapshot(
    context: Context,
    name: str,
    *,
    tables: Sequence[TableId] = (),
    sinks: Sequence[str] = (),
    sweep_many: bool = False,
    say: Say = lambda _: None,
) -> list[Swept]:
    """Read tables anew and sweep the sinks; return when every sink is swept.

    When an earlier call was interrupted, this one goes on where that one was, with what that one
    was asked to do. A snapshot that is aborted sweeps nothing: what was served stays served.

    Args:
        context: The installation.
        name: The source.
        tables: Which tables; all when empty.
        sinks: Sweep only these; all when empty. The others apply the rows too, but keep what is gone.
        sweep_many: Allow a sweep that removes more than a fifth of a table's rows.
        say: Told what happens.

    Raises:
        SourceError: When the connector does not stream, or the snapshot is aborted or incomplete.
        UsageError: When a sweep would remove too much (``RESNAPSHOT_SWEEP_LARGE``).
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    kafka, capture = Kafka(context.kafka_bootstrap), capture_of(context, entry)
    source = source_of(context, entry)
    run = _unfinished(registry, name)
    if run is None:
        _refuse_not_streaming(context, entry, capture.connector)
        chosen = _chosen(entry, tables)
        run = _begin(
            registry, name, {t.topic: _marks(kafka, entry, t) for t in chosen}, _sinks(registry, name, sinks)
        )
        say(f"reading {len(chosen)} tables anew")
        try:
            source.request_snapshot(capture, [t.schema.table for t in chosen], run.id)
        except SourceError:
            _end(registry, run, "aborted")
            raise
    else:
        say("going on with the resnapshot that was interrupted")
    marks: dict[str, list[int]] = run.plan["marks"]
    chosen = [table for table in entry.tables if table.topic in marks]
    if run.phase == "reading":
        try:
            _wait_read(context, entry, kafka, run, say)
        except SourceError:
            _end(registry, run, "aborted")
            raise
        ends = {t.topic: _marks(kafka, entry, t) for t in chosen}
        run = _advance(registry, run, "sweeping", ends=ends)
    swept = [
        done
        for found in _sinks(registry, name, ())
        if found.name in run.plan["sinks"]
        for done in _sweep(context, found, chosen, run.plan, sweep_many=sweep_many, say=say)
    ]
    _end(registry, run, "completed")
    registry.note(f"source {name}", "resnapshot", tables=list(marks), removed=sum(s.removed for s in swept))
    return swept


def _chosen(entry: SourceEntry, tables: Sequence[TableId]) -> list[SourceTableEntry]:
    known = {table.schema.table: table for table in entry.tables}
    missing = [str(table) for table in tables if table not in known]
    if missing:
        raise UsageError(
            f"Source {entry.name} does not capture {', '.join(missing)}.",
            code="TABLE_NOT_CAPTURED",
            hint=f"Captured: {', '.join(map(str, known))}.",
        )
    return [known[table] for table in tables] if tables else list(known.values())


def _sinks(registry: Registry, source: str, only: Sequence[str]) -> list[SinkEntry]:
    found = registry.sinks(source)
    for name in only:
        if registry.sink(name).source != source:
            raise UsageError(f"Sink {name} does not read from {source}.", code="SINK_OF_OTHER_SOURCE")
    return [entry for entry in found if not only or entry.name in only]


def _marks(kafka: Kafka, source: SourceEntry, table: SourceTableEntry) -> list[int]:
    """Return the ends of the table's topic, by partition.

    A sweep compares offsets, which order a key's records only as long as the key stays where it is.
    """
    ends = kafka.ends([table.topic])
    if len(ends) != source.partitions:
        raise SourceError(
            f"The topic {table.topic} has {len(ends)} partitions, and had {source.partitions}.",
            code="RESNAPSHOT_PARTITIONS",
            hint="Remove the source and add it again.",
        )
    return [ends[place][1] for place in sorted(ends)]


def _unfinished(registry: Registry, source: str) -> ResnapshotEntry | None:
    query = select(ResnapshotEntry).where(
        ResnapshotEntry.source == source, ResnapshotEntry.phase.in_(("reading", "sweeping"))
    )
    with registry.begin() as session:
        return session.scalars(query).first()


def _begin(
    registry: Registry, source: str, marks: dict[str, list[int]], sinks: Sequence[SinkEntry]
) -> ResnapshotEntry:
    run = ResnapshotEntry(
        id=str(uuid.uuid4()),
        source=source,
        phase="reading",
        begun_ms=now_ms(),
        plan={"marks": marks, "sinks": [sink.name for sink in sinks]},
    )
    with registry.begin() as session:
        session.add(run)
    return run


def _advance(registry: Registry, run: ResnapshotEntry, phase: str, **more: Any) -> ResnapshotEntry:
    with registry.begin() as session:
        known = session.get_one(ResnapshotEntry, run.id)
        known.phase = phase
        known.plan = {**known.plan, **more}
        return known


def _end(registry: Registry, run: ResnapshotEntry, phase: str) -> None:
    _advance(registry, run, phase)


def _refuse_not_streaming(context: Context, entry: SourceEntry, connector: str) -> None:
    with Connect(context.connect_url) as connect:
        state = connect.state(connector)
    if not state.running:
        raise SourceError(
            f"The connector of {entry.name} does not stream: {state.trace or state.task.lower()}",
            code="SOURCE_NOT_STREAMING",
            hint=f"headrace source resume {entry.name}",
        )


def _wait_read(context: Context, entry: SourceEntry, kafka: Kafka, run: ResnapshotEntry, say: Say) -> None:
    """Return when the connector says that it has read every table whole."""
    capture = capture_of(context, entry)
    wanted = [str(table.schema.table) for table in entry.tables if table.topic in run.plan["marks"]]
    began, told = time.monotonic(), -1
    with Connect(context.connect_url) as connect:
        while True:
            snapshot = incremental(kafka, capture, run.id)
            trouble = snapshot.unread(wanted)
            if trouble or snapshot.state is SnapshotState.ABORTED:
                why = ", ".join(f"{table}: {status}" for table, status in trouble.items())
                raise SourceError(
                    f"The snapshot of {entry.name} was not read whole: {why or 'aborted'}.",
                    code="RESNAPSHOT_INCOMPLETE",
                    hint="Nothing was removed from any sink. Mend the cause and run it again.",
                )
            if snapshot.state is SnapshotState.COMPLETED:
                return
            state = connect.state(capture.connector)
            waited = time.monotonic() - began
            if state.failed or (snapshot.state is SnapshotState.PENDING and waited > _PICKED_UP_S):
                raise SourceError(
                    f"The connector of {entry.name} did not take up the snapshot: "
                    f"{state.trace or state.task.lower()}",
                    code="RESNAPSHOT_NOT_STARTED",
                    hint=f"headrace source resume {entry.name}",
                )
            rows = sum(snapshot.scanned.values())
            if rows != told:
                say(f"read {rows:,} rows of {len(snapshot.scanned)} finished tables")
                told = rows
            time.sleep(0.3)


def _sweep(
    context: Context,
    entry: SinkEntry,
    chosen: Sequence[SourceTableEntry],
    asked: dict[str, Any],
    *,
    sweep_many: bool,
    say: Say,
) -> list[Swept]:
    mine = [table for table in chosen if table.topic in entry.tables]
    ends = {(table.topic, n): end for table in mine for n, end in enumerate(asked["ends"][table.topic])}
    wait_settled(context.progress, entry.name, ends, say=say)
    swept: list[Swept] = []
    with closing(open_sink(entry)) as sink:
        for table in mine:
            marks = [Position(table.epoch, at, n) for n, at in enumerate(asked["marks"][table.topic])]
            name = table.schema.table
            versions = [stored.version for stored in sink.scan(table.schema)]
            older = sum(any(mark.floor <= version < mark.version for mark in marks) for version in versions)
            if not sweep_many and older > max(_LARGE_ROWS, _LARGE_SHARE * len(versions)):
                raise UsageError(
                    f"The sweep of {entry.name} would remove {older:,} of {len(versions):,} rows of {name}.",
                    code="RESNAPSHOT_SWEEP_LARGE",
                    hint="If the source really has so few rows, run it again with --sweep-many.",
                )
            removed = sum(sink.truncate(table.schema, mark) for mark in marks) if older else 0
            if load_holds(context.checkpoints / entry.name).held.get(str(name)):
                leave(context, entry.name, Request(swept={str(name): [mark.version for mark in marks]}))
            say(f"{entry.name}: removed {removed:,} rows of {name} that the source no longer has")
            Registry(context.registry).completed(entry.name, table.topic)
            swept.append(Swept(entry.name, str(name), removed))
    return swept
