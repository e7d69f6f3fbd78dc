"""Lag, told honestly: four different numbers, one word per table × sink, a reason and a remedy.

* **slot lag**: bytes of WAL the database keeps for the connector.
* **consumer lag**: offsets between what a sink has settled and the end of its topic. Kafka counts the
  markers of transactions as offsets, so a few are no changes.
* **latency**: commit → applied, per change; measured by the engine.
* **freshness**: the sink shows the table as of so many seconds ago, also when nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from headrace.config.pipeline import SchemaPolicy
from headrace.control.context import Context
from headrace.control.gap import START_OVER
from headrace.control.kafka import Kafka
from headrace.control.observation import Next, SinkSeen, SourceSeen, observe
from headrace.control.progress import TableProgress
from headrace.control.registry import SinkEntry, SourceTableEntry

__all__ = ["LagReport", "SinkLag", "SourceLag", "State", "TableLag", "Verdict", "judge", "measure"]

SILENT_AFTER_S = 10.0
BEATS_MISSED = 10
FRESH_WITHIN_S = 10.0


class State(str, Enum):
    """One word, from best to worst as they are listed in :data:`_ORDER`."""

    SETUP = "setup"
    SNAPSHOTTING = "snapshotting"
    STREAMING = "streaming"
    CATCHING_UP = "catching_up"
    PAUSED = "paused"
    DEGRADED = "degraded"
    FAILED = "failed"
    RESYNC_REQUIRED = "resync_required"


_ORDER = (
    State.STREAMING,
    State.CATCHING_UP,
    State.SNAPSHOTTING,
    State.SETUP,
    State.PAUSED,
    State.DEGRADED,
    State.FAILED,
    State.RESYNC_REQUIRED,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A state, why, and what to do."""

    state: State
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class TableLag:
    """One table at one sink; see the module's words for the numbers. None means: not known."""

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
class SourceLag:
    """One source and what its database keeps for it."""

    source: str
    state: State
    reason: str
    remedy: str
    slot_lag_bytes: int | None
    unconfirmed_bytes: int | None
    spare_bytes: int | None
    heartbeat_seconds: float | None


@dataclass(frozen=True, slots=True)
class LagReport:
    """All of it at one moment.

    Args:
        in_sync: True only when every table of every sink is streaming, has settled everything that
            was in Kafka, and a heartbeat proves that nothing was still before Kafka.
    """

    at_ms: int
    in_sync: bool
    sources: tuple[SourceLag, ...]
    sinks: tuple[SinkLag, ...]
    tables: tuple[TableLag, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the report JSON-ready."""
        return asdict(self)


def measure(context: Context, kafka: Kafka | None = None) -> LagReport:
    """Look once and judge.

    Args:
        context: The installation.
        kafka: Its Kafka; who looks again and again keeps one, which spares half the cost of a look.
    """
    return judge(*observe(context, kafka or Kafka(context.kafka_bootstrap)))


def judge(sources: Iterable[SourceSeen], sinks: Iterable[SinkSeen]) -> LagReport:
    """Return what the observations mean."""
    seen = {source.entry.name: source for source in sources}
    verdicts = {name: _source_verdict(source) for name, source in seen.items()}
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
    return LagReport(
        at_ms=max((source.now_ms for source in seen.values()), default=0),
        in_sync=bool(tables) and all(map(_in_sync, tables)),
        sources=tuple(_source(source, verdicts[name]) for name, source in seen.items()),
        sinks=tuple(summaries),
        tables=tuple(tables),
    )


def _in_sync(table: TableLag) -> bool:
    fresh = table.freshness_seconds is not None and table.freshness_seconds <= FRESH_WITHIN_S
    return table.state is State.STREAMING and table.lag_records == 0 and fresh


def _source_verdict(seen: SourceSeen) -> Verdict:
    """Say how the source does; the worst that was seen wins."""
    name = seen.entry.name
    if seen.gap:
        return Verdict(State.RESYNC_REQUIRED, seen.gap, START_OVER.format(name=name))
    if seen.connector is not None:
        if seen.connector.failed:
            return Verdict(State.FAILED, seen.connector.trace, f"headrace source resume {name}")
        if seen.connector.connector in ("PAUSED", "STOPPED"):
            return Verdict(
                State.PAUSED,
                "the source is paused; the database keeps its WAL",
                f"headrace source resume {name}",
            )
        if seen.connector.connector == "ABSENT":
            return Verdict(State.FAILED, "Connect has lost the connector", START_OVER.format(name=name))
    if seen.silent:
        return Verdict(State.DEGRADED, "; ".join(seen.silent), "headrace up")
    if not seen.loaded:
        return Verdict(State.SNAPSHOTTING, "the initial snapshot is under way")
    if seen.connector is not None and not seen.connector.running:
        return Verdict(State.DEGRADED, f"the connector is {seen.connector.task.lower()}")
    if seen.hold is not None and not seen.hold.active:
        return Verdict(State.DEGRADED, "the connector is not connected to its slot")
    silence = _age_s(seen.now_ms, seen.beat_ms)
    allowed = max(SILENT_AFTER_S, BEATS_MISSED * seen.entry.settings["heartbeat_ms"] / 1000)
    if silence is None or silence > allowed:
        said = "no heartbeat" if silence is None else f"the last heartbeat is {silence:.0f} s old"
        return Verdict(State.DEGRADED, f"{said}, so what was committed since is not proven to have arrived")
    return Verdict(State.STREAMING)


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
        heartbeat_seconds=_age_s(seen.now_ms, seen.beat_ms),
    )


def _sink(seen: SinkSeen, tables: list[TableLag]) -> SinkLag:
    worst = max(tables, key=lambda table: _ORDER.index(table.state))
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
    freshness = _freshness_s(source, sink.following.get(table.topic), behind, counters)
    said = (
        _gap(source, sink, table)
        or _engine(sink)
        or _inherited(verdict)
        or _uncaptured(source, table)
        or _weakness(source, table)
        or _backlog(source.entry.name, sink.entry, counters, behind, freshness)
    )
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
    source: SourceSeen, following: Next | None, behind: int | None, counters: TableProgress
) -> float | None:
    """Return how old the table's state at the sink may be; None when nothing proves anything.

    All settled: as of the last heartbeat. Else: as of the commit of the first change that is not
    settled, for changes of a topic come in commit order. A row read by a snapshot bounds nothing;
    then only the newest change applied does.
    """
    if behind is None or not source.loaded:
        return None
    if behind == 0:
        return _age_s(source.now_ms, source.beat_ms)
    if following is not None and not following.snapshot:
        return _age_s(source.now_ms, following.commit_ms)
    return _age_s(source.now_ms, counters.last_commit_ms)


def _gap(source: SourceSeen, sink: SinkSeen, table: SourceTableEntry) -> Verdict | None:
    """Return the verdict when changes are missing from this table's history."""
    remedy = START_OVER.format(name=source.entry.name)
    if source.topic_ids is not None and source.topic_ids.get(table.topic) != table.topic_id:
        what = "was made anew" if table.topic in source.topic_ids else "is gone"
        return Verdict(State.RESYNC_REQUIRED, f"the topic {table.topic} {what}", remedy)
    again = f"headrace resnapshot {source.entry.name} {table.schema.table}"
    if table.topic in sink.entry.incomplete:
        lost = sink.entry.incomplete[table.topic]
        said = f"what {table.topic} tells does not make rows whole that are older than its offset {lost}"
        return Verdict(State.RESYNC_REQUIRED, said, again)
    if source.ends is None or sink.progress is None:
        return None
    if sum(topic == table.topic for topic, _ in source.ends) > source.entry.partitions:
        return Verdict(State.RESYNC_REQUIRED, f"the topic {table.topic} has got more partitions", remedy)
    for (topic, partition), (first, _) in source.ends.items():
        settled = sink.progress.next_offsets.get((topic, partition), 0)
        if topic == table.topic and settled < first:
            return Verdict(
                State.RESYNC_REQUIRED,
                f"Kafka no longer holds offsets {settled} to {first - 1} of {topic}",
                remedy,
            )
    return None


def _weakness(source: SourceSeen, table: SourceTableEntry) -> Verdict | None:
    """Return the verdict when the database's log no longer tells all of this table."""
    found = source.hold.weakened.get(table.schema.table) if source.hold else None
    return Verdict(State.DEGRADED, found.reason, found.remedy) if found else None


def _engine(sink: SinkSeen) -> Verdict | None:
    """Return the verdict when the sink's own query is the trouble."""
    name, progress = sink.entry.name, sink.progress
    if sink.paused or (progress is not None and progress.state == "paused"):
        return Verdict(
            State.PAUSED, "the sink is paused; changes wait in Kafka", f"headrace sink resume {name}"
        )
    if sink.engine == "starting":
        return Verdict(State.SETUP, "the engine is starting")
    silence = _age_s(sink.now_ms, progress.updated_ms if progress else None)
    if sink.engine in ("silent", "stopped") or (silence is not None and silence > SILENT_AFTER_S):
        since = f" for {silence:.0f} s" if silence is not None else ""
        return Verdict(State.FAILED, f"the engine has said nothing{since}", f"headrace sink resume {name}")
    if progress is None:
        return Verdict(State.SETUP, "the engine has not taken it up yet")
    error = progress.error or {}
    if progress.state in ("failed", "stopped", "removed"):
        reason = error.get("message", f"the query is {progress.state}")
        return Verdict(State.FAILED, reason, error.get("hint", ""))
    if progress.state == "degraded":
        return Verdict(State.DEGRADED, error.get("message", ""), error.get("hint", ""))
    if progress.state == "starting":
        return Verdict(State.SETUP, "the query is starting")
    return None


def _uncaptured(source: SourceSeen, table: SourceTableEntry) -> Verdict | None:
    if source.hold is None or table.schema.table not in source.hold.uncaptured:
        return None
    return Verdict(
        State.FAILED,
        "the publication lacks the table: it was dropped, perhaps made anew, or taken out",
        f"headrace source refresh {source.entry.name}",
    )


def _inherited(verdict: Verdict) -> Verdict | None:
    return verdict if verdict.state is not State.STREAMING else None


_CHANGED = ("added", "missing")


def _backlog(
    source: str, sink: SinkEntry, counters: TableProgress, behind: int | None, freshness: float | None
) -> Verdict:
    drift, policy = counters.drift or {}, SchemaPolicy(sink.on_schema_change)
    if drift.get("key"):
        return Verdict(
            State.FAILED,
            f"the table's key is ({', '.join(drift['key'])}) now: other rows are meant than those mirrored",
            f"remove sink {sink.name} with --purge and source {source}, and add them anew",
        )
    if counters.behind:
        rows = "1 row is" if counters.behind == 1 else f"{counters.behind:,} rows are"
        return Verdict(
            State.DEGRADED,
            f"{rows} behind: changes of theirs are in the dead letter queue",
            f"headrace dlq list --sink {sink.name}",
        )
    said = "; ".join(f"columns {word}: {', '.join(drift[word])}" for word in _CHANGED if drift.get(word))
    if said and policy is not SchemaPolicy.IGNORE:
        return Verdict(
            State.DEGRADED,
            f"the table's columns are not those mirrored ({said})",
            f"headrace source refresh {source}",
        )
    if behind is None:
        return Verdict(State.DEGRADED, "Kafka does not tell how far its topics go", "headrace up")
    if behind and (freshness is None or freshness > FRESH_WITHIN_S):
        return Verdict(State.CATCHING_UP, f"{behind:,} records to apply")
    return Verdict(State.STREAMING, f"{said}: ignored, as the sink is told to" if said else "")


def _age_s(now_ms: int, then_ms: int | None) -> float | None:
    return None if then_ms is None else max(0.0, (now_ms - then_ms) / 1000)
