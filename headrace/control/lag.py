"""Lag, told honestly: four different numbers, one word per table × sink, a reason and a remedy.

* **slot lag**: bytes of WAL the database keeps for the connector.
* **consumer lag**: offsets between what a sink has settled and the end of its topic. Kafka counts the
  markers of transactions as offsets, so a few are no changes.
* **latency**: commit → applied, per change; measured by the engine.
* **freshness**: the sink shows the table as of so many seconds ago, also when nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from headrace.config.pipeline import PipelineSpec
from headrace.control.alone import is_held
from headrace.control.begun import noted
from headrace.control.context import Context
from headrace.control.heard import CLOCK_SLACK_S, age_s
from headrace.control.kafka import Kafka
from headrace.control.lost import added_again
from headrace.control.observation import Next, SinkSeen, SourceSeen, observe
from headrace.control.pipelines import orphans
from headrace.control.progress import TableProgress
from headrace.control.registry import Registry, SinkEntry, SourceTableEntry
from headrace.control.status_rules import (
    is_watched,
    proof_within_s,
    source_verdict,
    table_verdict,
)
from headrace.control.undone import begun_sinks
from headrace.control.verdicts import ORDER, State, Verdict
from headrace.model.pasted import command

__all__ = [
    "LagReport",
    "Note",
    "SinkLag",
    "SourceLag",
    "State",
    "TableLag",
    "Verdict",
    "coming",
    "judge",
    "measure",
]

_NAMED = 5


@dataclass(frozen=True, slots=True)
class TableLag:
    """One table at one sink; see the module's words for the numbers. None means: not known.

    ``store_seen_seconds`` is how long ago the store itself told what it has.
    """

    source: str
    table: str
    sink: str
    state: State
    reason: str
    remedy: str
    lag_records: int | None
    freshness_seconds: float | None
    applied: int
    stale: int
    rejected: int
    behind: int
    last_applied_ms: int | None
    store_seen_seconds: float | None


@dataclass(frozen=True, slots=True)
class SinkLag:
    """One sink: the worst of its tables' states, and its latency."""

    sink: str
    kind: str
    source: str
    state: State
    reason: str
    remedy: str
    latency_ms: Mapping[str, Any]
    first_row_ms: int | None
    updated_ms: int | None


@dataclass(frozen=True, slots=True)
class Note:
    """Something to be decided by a person; nothing that is captured is wrong.

    Args:
        code: What kind of thing, for programs.
        message: What was seen.
        tables: Which tables are meant; none where it is the database.
        remedy: The command that takes them in, or the statement that mends it.
        decline: The command after which it is told no more; empty where there is none.
    """

    code: str
    message: str
    tables: tuple[str, ...]
    remedy: str
    decline: str


@dataclass(frozen=True, slots=True)
class SourceLag:
    """One source, what its database keeps for it, and what is to be decided about it."""

    source: str
    state: State
    reason: str
    remedy: str
    slot_lag_bytes: int | None
    unconfirmed_bytes: int | None
    spare_bytes: int | None
    heartbeat_seconds: float | None
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class LagReport:
    """All of it at one moment.

    Args:
        in_sync: True only when every table of every sink is streaming, has settled everything that
            was in Kafka, a heartbeat proves that nothing was still before Kafka, and the store itself has
            told that it has it. Proof is no older than the heartbeat's interval and two seconds. The
            catalogue was looked at then, or within the time between two looks before.
    """

    at_ms: int
    in_sync: bool
    sources: tuple[SourceLag, ...]
    sinks: tuple[SinkLag, ...]
    tables: tuple[TableLag, ...]
    in_sync_age_seconds: float | None = None
    """What was committed so many seconds before the look, or earlier, is in every store. None: not proven."""

    @property
    def is_well(self) -> bool:
        """Return whether nothing is degraded, failed or in need of a resnapshot; catching up is no error."""
        seen = {*(s.state for s in self.sources), *(s.state for s in self.sinks)}
        seen |= {table.state for table in self.tables}
        return not seen & {State.DEGRADED, State.FAILED, State.RESYNC_REQUIRED}

    def shows(self, seconds: float) -> bool:
        """Return whether every sink shows what was committed so many seconds before the look began."""
        return self.in_sync_age_seconds is not None and self.in_sync_age_seconds < seconds

    def as_dict(self) -> dict[str, Any]:
        """Return the report JSON-ready."""
        return asdict(self)


def measure(context: Context, kafka: Kafka | None = None) -> LagReport:
    """Look once and judge.

    Args:
        context: The installation.
        kafka: Its Kafka; who looks again and again keeps one, which spares half the cost of a look.
    """
    registry = Registry(context.registry)
    begun = noted(registry)  # before the look: who registers meanwhile is seen by that
    report = judge(*observe(context, kafka or Kafka(context.kafka_bootstrap)))
    if names := begun.keys() - {source.source for source in report.sources}:
        told = [_begun(context, name) for name in sorted(names)]
        gone = names - noted(registry).keys()  # what was under way has ended, and has left nothing
        begun_ones = tuple(one for one in told if one.source not in gone or one.state is State.SETUP)
        report = replace(report, sources=(*report.sources, *begun_ones))
    seen = {sink.sink for sink in report.sinks}
    begun_too = [_begun_sink(context, one) for name, one in begun_sinks(registry).items() if name not in seen]
    still = begun_sinks(registry) if begun_too else {}  # as above: one that has ended was not broken off
    begun_too = [one for one in begun_too if one.sink in still or one.state is State.SETUP]
    report = replace(report, sinks=(*report.sinks, *begun_too))
    lost = orphans(context, registry)
    if not lost:
        return report
    known = registry.sources()
    said = tuple(_lost(spec, added_again(spec, lost, known)) for spec in lost)
    return replace(report, in_sync=False, in_sync_age_seconds=None, sinks=(*report.sinks, *said))


def coming(name: str) -> SourceLag:
    """Return the word for a source that comes or goes just now."""
    reason = "a command adds it or removes it just now"
    return SourceLag(name, State.SETUP, reason, "", None, None, None, None)


def _begun(context: Context, name: str) -> SourceLag:
    """Return the word for a source that is not registered, and of which something may be there."""
    if is_held(context, "source", name):
        return coming(name)
    reason = "a command that adds or removes it was broken off: what it has made may be there still"
    return SourceLag(name, State.FAILED, reason, f"headrace source remove {name}", None, None, None, None)


def _begun_sink(context: Context, entry: SinkEntry) -> SinkLag:
    """Return the word for a sink that is not registered, and of which something may be there."""
    state, reason, remedy = State.SETUP, "a command adds it or removes it just now", ""
    if not is_held(context, "sink", entry.name):
        state = State.FAILED
        reason = "a command that adds it was broken off: what it has made may be there still"
        remedy = f"headrace sink remove {entry.name} --purge"
    return SinkLag(entry.name, entry.kind, entry.source, state, reason, remedy, {}, None, None)


def _lost(spec: PipelineSpec, remedy: str) -> SinkLag:
    """Return the word for a pipeline that runs and of which the registry knows nothing."""
    return SinkLag(
        sink=spec.sink,
        kind=spec.kind,
        source=spec.source,
        state=State.FAILED,
        reason="the registry was lost or restored and does not know this sink, which the engine still runs",
        remedy=remedy,
        latency_ms={},
        first_row_ms=None,
        updated_ms=None,
    )


def judge(sources: Iterable[SourceSeen], sinks: Iterable[SinkSeen]) -> LagReport:
    """Return what the observations mean."""
    seen = {source.entry.name: source for source in sources}
    verdicts = {name: source_verdict(source) for name, source in seen.items()}
    tables: list[TableLag] = []
    summaries: list[SinkLag] = []
    for sink in sinks:
        source = seen[sink.entry.source]
        mine = [
            _table(source, verdicts[sink.entry.source], sink, table)
            for table in source.entry.tables
            if table.topic in sink.entry.tables
        ]
        tables += mine
        summaries.append(_sink(sink, mine))
    in_sync = bool(tables) and all(_in_sync(table, seen[table.source]) for table in tables)
    oldest = max((table.freshness_seconds or 0.0 for table in tables), default=0.0)
    return LagReport(
        at_ms=max((source.now_ms for source in seen.values()), default=0),
        in_sync=in_sync,
        in_sync_age_seconds=oldest if in_sync else None,
        sources=tuple(_source(source, verdicts[name]) for name, source in seen.items()),
        sinks=tuple(summaries),
        tables=tuple(tables),
    )


def _in_sync(table: TableLag, source: SourceSeen) -> bool:
    ages, within_s = (table.freshness_seconds, table.store_seen_seconds), proof_within_s(source)
    proven = all(age is not None and -CLOCK_SLACK_S <= age <= within_s for age in ages)
    return table.state is State.STREAMING and table.lag_records == 0 and proven and is_watched(source)


def _source(seen: SourceSeen, verdict: Verdict) -> SourceLag:
    hold = seen.hold
    return SourceLag(
        source=seen.entry.name,
        state=verdict.state,
        reason=verdict.reason,
        remedy=verdict.remedy,
        slot_lag_bytes=hold.held_bytes if hold else None,
        unconfirmed_bytes=hold.unconfirmed_bytes if hold else None,
        spare_bytes=hold.spare_bytes if hold else None,
        heartbeat_seconds=age_s(seen.now_ms, seen.beat_ms),
        notes=_notes(seen),
    )


def _notes(seen: SourceSeen) -> tuple[Note, ...]:
    harms = seen.hold.harms if seen.hold is not None else ()
    told = [Note(found.code, found.message, (), found.hint, "") for found in harms]
    return (*told, *_newcomers(seen))


def _newcomers(seen: SourceSeen) -> tuple[Note, ...]:
    if not seen.newcomers:
        return ()
    name, tables = seen.entry.name, tuple(map(str, seen.newcomers))
    what = f"{tables[0]} is new and is" if len(tables) == 1 else f"{len(tables)} new tables are"
    some = (
        "" if len(tables) == 1 else f": {', '.join(tables[:_NAMED])}{', …' if len(tables) > _NAMED else ''}"
    )
    told = command(*tables)
    return (
        Note(
            code="TABLE_NOT_CAPTURED",
            message=f"{what} not captured by {name}{some}",
            tables=tables,
            remedy=f"headrace source tables add {name} {told}",
            decline=f"headrace source tables decline {name} {told}",
        ),
    )


def _sink(seen: SinkSeen, tables: list[TableLag]) -> SinkLag:
    worst = max(tables, key=lambda table: ORDER.index(table.state))
    return SinkLag(
        sink=seen.entry.name,
        kind=seen.entry.kind,
        source=seen.entry.source,
        state=worst.state,
        reason=worst.reason,
        remedy=worst.remedy,
        latency_ms=seen.progress.latency_ms if seen.progress else {},
        first_row_ms=seen.progress.first_row_ms if seen.progress else None,
        updated_ms=seen.progress.updated_ms if seen.progress else None,
    )


def _table(source: SourceSeen, verdict: Verdict, sink: SinkSeen, table: SourceTableEntry) -> TableLag:
    name = str(table.schema.table)
    counters = (sink.progress.tables.get(name) if sink.progress else None) or TableProgress()
    behind = _behind(source, sink, table.topic)
    freshness = _freshness_s(source, table.topic, sink.following.get(table.topic), behind, counters)
    said = table_verdict(source, verdict, sink, table, counters, behind, freshness)
    return TableLag(
        source=source.entry.name,
        table=name,
        sink=sink.entry.name,
        state=said.state,
        reason=said.reason,
        remedy=said.remedy,
        lag_records=behind,
        freshness_seconds=freshness,
        applied=counters.applied,
        stale=counters.stale,
        rejected=counters.rejected,
        behind=counters.behind,
        last_applied_ms=counters.last_applied_ms,
        store_seen_seconds=age_s(sink.now_ms, sink.progress.checked_ms if sink.progress else None),
    )


def _behind(source: SourceSeen, sink: SinkSeen, topic: str) -> int | None:
    if source.ends is None or sink.progress is None:
        return None
    settled = sink.progress.next_offsets
    return sum(
        max(0, end - settled.get((name, partition), 0))
        for (name, partition), (_, end) in source.ends.items()
        if name == topic
    )


def _freshness_s(
    source: SourceSeen, topic: str, following: Next | None, behind: int | None, counters: TableProgress
) -> float | None:
    """Return how old the table's state at the sink may be; None when nothing proves anything.

    All settled: as of the last heartbeat. Else: as of the commit of the first change that is not
    settled, for changes of a partition come in commit order. A row read by a snapshot bounds nothing;
    then only the newest change applied does, which may have been of another partition, where there are some.
    """
    if behind is None or not source.loaded:
        return None
    if behind == 0:
        return age_s(source.now_ms, source.beat_ms)
    if following is None or following.snapshot:
        alone = sum(name == topic for name, _ in source.ends or ()) == 1
        return age_s(source.now_ms, counters.last_commit_ms) if alone else None
    return age_s(source.now_ms, following.commit_ms)
