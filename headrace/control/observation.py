"""One look at everything lag is judged by, gathered in the order that keeps the judgement true."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from connectors.base import Hold
from connectors.registry import newest_beat
from headrace.config.pipeline import load_pipeline
from headrace.control.beats import NEWEST, told_otherwise
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect, ConnectorState
from headrace.control.connect_log import last_error
from headrace.control.context import Context
from headrace.control.first_load import begun_again, note_loaded
from headrace.control.gap import gap_between, gap_told_by
from headrace.control.kafka import Kafka
from headrace.control.looks import last_look
from headrace.control.newcomers import newcomers
from headrace.control.progress import SinkProgress, read_progress
from headrace.control.registry import Registry, SinkEntry, SourceEntry, VerdictEntry
from headrace.control.runner import engine_state
from headrace.control.snapshot import initial
from headrace.control.verdicts import standing
from headrace.model.errors import HeadraceError, LoginRefused
from headrace.model.life import life_of
from headrace.model.schema import TableId
from headrace.observe import pidfile

__all__ = ["Next", "Silence", "SinkSeen", "SourceSeen", "observe"]

_BOOT_MS = 180_000


@dataclass(frozen=True, slots=True)
class Next:
    """The first records that a sink has not settled of a topic, one of each partition.

    Args:
        commit_ms: When the first of those was committed that tell of a change, by the source's clock; None
            when none does.
        snapshot: Whether one was read by a snapshot: its time bounds nothing, nor does what comes before it.
    """

    commit_ms: int | None
    snapshot: bool


@dataclass(frozen=True, slots=True)
class Silence:
    """A part that did not answer: why, and what to do."""

    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """What was seen of a source; None where the part did not answer, with the reason in ``silent``.

    Args:
        entry: Its registration.
        connector: Connect's word.
        hold: The database's word.
        loaded: Whether the initial snapshot is complete.
        gap: Why changes are missing between database and Kafka; empty when none are known to be.
        beat_ms: Commit time of the last heartbeat that came through Kafka.
        ends: ``(topic, partition)`` → first kept offset, end offset; read after the heartbeat.
        topic_ids: Identity of the topics now.
        now_ms: The time of the look, by the source's clock when it answered.
        silent: What did not answer, and why.
        verdicts: What stands against its tables in the registry.
        sinks: Its sinks.
        newcomers: Tables of its schemas that are not captured and that nobody has declined.
        unwatched_s: How long ago the catalogue was last compared with what is mirrored; None when never.
        look_s: How long that took.
        attempts: How often the initial snapshot has begun, while it is not complete.
        error: What ended its last try, as far as the local Connect's log tells; else empty.
    """

    entry: SourceEntry
    connector: ConnectorState | None
    hold: Hold | None
    loaded: bool
    gap: str
    beat_ms: int | None
    ends: Mapping[tuple[str, int], tuple[int, int]] | None
    topic_ids: Mapping[str, str] | None
    now_ms: int
    silent: tuple[Silence, ...] = ()
    verdicts: Sequence[VerdictEntry] = ()
    sinks: Sequence[SinkEntry] = ()
    newcomers: Sequence[TableId] = ()
    unwatched_s: float | None = None
    look_s: float = 0.0
    attempts: int = 1
    error: str = ""


@dataclass(frozen=True, slots=True)
class SinkSeen:
    """What was seen of a sink.

    Args:
        entry: Its registration.
        paused: Whether it was told to pause.
        progress: The engine's word; None when there is none yet.
        engine: ``absent``, ``starting``, ``ready``, ``silent`` or ``stopped``.
        following: Topic → its first records not settled, for topics that have some.
        now_ms: This machine's clock, which also stamps progress.
        other_lives: Topics that its query reads as another incarnation than the registry's.
        untold: Topics of its tables that its query was not told of.
        withheld: Whether its query rests while a command works on its targets.
        beyond: ``(topic, partition)`` → what the sink has settled up to, and where the topic ends, for those
            that ended below it when they were looked at after the progress was read.
    """

    entry: SinkEntry
    paused: bool
    progress: SinkProgress | None
    engine: str
    following: Mapping[str, Next]
    now_ms: int
    beyond: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    other_lives: frozenset[str] = frozenset()
    untold: frozenset[str] = frozenset()
    withheld: bool = False


def observe(context: Context, kafka: Kafka) -> tuple[list[SourceSeen], list[SinkSeen]]:
    """Look at all sources, then at all sinks.

    A heartbeat with commit time T was produced after everything committed before T; so a sink that
    has settled up to ends read *after* that heartbeat shows its tables as of T.
    """
    registry = Registry(context.registry)
    sources = [_source(context, registry, kafka, entry) for entry in registry.sources()]
    by_name = {source.entry.name: source for source in sources}
    sinks = registry.sinks()
    if not all(entry.source in by_name for entry in sinks):  # both were added while sources were looked at
        return observe(context, kafka)
    return sources, [_sink(context, kafka, entry, by_name[entry.source]) for entry in sinks]


def _source(context: Context, registry: Registry, kafka: Kafka, entry: SourceEntry) -> SourceSeen:
    capture = capture_of(context, entry)
    # By this machine's clock, as the watcher's; and before the verdicts are read, which it may add to.
    look = last_look(context, entry.name)
    unwatched_s = (_now_ms() - look.at_ms) / 1000 if look is not None else None
    topics = [table.topic for table in entry.tables]
    silent: list[Silence] = []
    told = time.monotonic()
    connector: ConnectorState | None = None
    hold: Hold | None = None
    gap = entry.gap or ""
    try:
        hold = source_of(context, entry).hold(capture, loading=entry.loaded_ms is None)
        told = time.monotonic()
        gap = gap_told_by(entry, hold)
    except HeadraceError as error:
        silent.append(_silence(error, entry.name))
    try:
        with Connect(context.connect_url, patience=2.0) as connect:
            connector = connect.state(capture.connector)
            if hold is not None and not gap:
                gap = gap_between(context, connect, entry, hold, connector, acts=False)
    except HeadraceError as error:
        silent.append(Silence(error.message, error.hint))
    if gap and not entry.gap:
        registry.gap(entry, gap)
    beat: int | None = None
    ends: Mapping[tuple[str, int], tuple[int, int]] | None = None
    ids: Mapping[str, str] | None = None
    loaded, verdicts = entry.loaded_ms is not None, standing(registry, entry.name)
    attempts = 1
    try:
        loaded = note_loaded(registry, kafka, capture, entry)
        if not loaded:
            attempts = initial(kafka, capture).attempts  # of all tries, also of one that was passed over
        if not gap and (gap := begun_again(registry, kafka, capture, entry)):
            registry.gap(entry, gap)
        # Before the ends: a verdict that is taken back meanwhile leaves records behind the ends.
        verdicts = standing(registry, entry.name)
        beats = kafka.tail(capture.topic(capture.heartbeat), NEWEST)
        beat = _commit_ms(beats[-1]) if beats else None
        if not gap and loaded:  # which tables it was true of stands, when the watcher has read it
            gap = told_otherwise(entry.kind, newest_beat(entry.kind, beats))
        ends = kafka.ends(topics)
        ids = kafka.ids(topics)
    except HeadraceError as error:
        silent.append(Silence(error.message, error.hint))
    # What was read meanwhile may be younger than the database's word.
    now = hold.now_ms + int((time.monotonic() - told) * 1000) if hold else _now_ms()
    return SourceSeen(
        entry,
        connector,
        hold,
        loaded,
        gap,
        beat,
        ends,
        ids,
        now,
        tuple(silent),
        verdicts=verdicts,
        newcomers=newcomers(registry, entry),
        sinks=registry.sinks(entry.name),
        unwatched_s=unwatched_s,
        look_s=look.took_s if look is not None else 0.0,
        attempts=attempts,
        error=last_error(context.connect_log, capture.connector, entry.created_ms) if attempts > 1 else "",
    )


def _silence(error: HeadraceError, source: str) -> Silence:
    """Return why the database does not answer; one that answers and refuses needs another password."""
    if isinstance(error, LoginRefused):
        return Silence(error.message, f"headrace source rotate {source} env:VARIABLE")
    return Silence(error.message, error.hint)


def _sink(context: Context, kafka: Kafka, entry: SinkEntry, source: SourceSeen) -> SinkSeen:
    progress, now_ms = read_progress(context.progress, entry.name), _now_ms()
    if progress is not None:
        progress = progress.of({t.topic: life_of(t.topic, t.topic_id) for t in source.entry.tables})
    paused, withheld, other_lives, untold = False, False, frozenset[str](), frozenset[str]()
    with suppress(OSError, ValueError):  # the engine says what is wrong with a damaged one
        spec = load_pipeline(context.pipelines / f"{entry.name}.json")
        lives = {table.topic: (table.epoch, table.topic_id) for table in source.entry.tables}
        # A file of an older version does not tell the topic's identity.
        told = {t.topic: (t.epoch, t.topic_id) for t in spec.tables if t.topic in lives and t.topic_id}
        other_lives = frozenset(topic for topic, life in told.items() if life != lives[topic])
        paused, withheld = spec.paused, spec.withheld
        if not withheld:  # who takes tables in or out tells it a moment later
            untold = frozenset(entry.tables.keys() - {table.topic for table in spec.tables})
    following: dict[str, Next] = {}
    if progress is not None and source.ends is not None and source.loaded:
        settled = {place: progress.next_offsets.get(place, 0) for place in source.ends}
        behind = {
            place: settled[place]
            for place, (_, end) in source.ends.items()
            if place[0] in entry.tables and settled[place] < end
        }
        for (topic, _), record in kafka.firsts(behind).items() if behind else ():
            following[topic] = _earlier(following.get(topic), _next(record))
    beyond = _beyond(kafka, progress, source)
    return SinkSeen(
        entry,
        paused,
        progress,
        _engine(context),
        following,
        now_ms,
        beyond,
        other_lives,
        untold,
        withheld,
    )


def _beyond(
    kafka: Kafka, progress: SinkProgress | None, source: SourceSeen
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return what the sink has settled beyond the ends of topics, which are read again for that."""
    if progress is None or source.ends is None:
        return {}
    suspects = {
        place: settled
        for place, settled in progress.next_offsets.items()
        if place in source.ends and settled > source.ends[place][1]
    }
    if not suspects:
        return {}
    ends = kafka.ends(sorted({topic for topic, _ in suspects}))
    return {
        place: (settled, ends[place][1])
        for place, settled in suspects.items()
        if place in ends and settled > ends[place][1]
    }


def _engine(context: Context) -> str:
    """Return the engine's state; between its start and its first word it is starting."""
    told = engine_state(context.progress)
    pid_file = context.run / "engine.pid"
    try:
        started_ms = int(pid_file.stat().st_mtime * 1000)
    except OSError:
        return str(told["state"])
    # Where the clock was set back since, all words of the engine seem to be of before its start.
    fresh = told.get("updated_ms", 0) < started_ms and 0 <= _now_ms() - started_ms < _BOOT_MS
    return "starting" if fresh and pidfile.alive(pid_file) else str(told["state"])


def _next(record: Mapping[str, Any]) -> Next:
    read = (record.get("source") or {}).get("snapshot") not in (None, "false", False)
    return Next(None if read else _commit_ms(record) or 0, read)


def _earlier(known: Next | None, other: Next) -> Next:
    if known is None:
        return other
    changes = [ms for ms in (known.commit_ms, other.commit_ms) if ms is not None]
    return Next(min(changes, default=None), known.snapshot or other.snapshot)


def _commit_ms(record: Mapping[str, Any]) -> int | None:
    value = (record.get("source") or {}).get("ts_ms")
    return int(value) if value is not None else None


def _now_ms() -> int:
    return int(time.time() * 1000)
