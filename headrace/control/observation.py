"""One look at everything lag is judged by, gathered in the order that keeps the judgement true."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connectors.base import Hold
from headrace.config.pipeline import load_pipeline
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect, ConnectorState
from headrace.control.context import Context
from headrace.control.gap import gap_between
from headrace.control.kafka import Kafka
from headrace.control.progress import SinkProgress, read_progress
from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.control.runner import engine_state
from headrace.control.snapshot import SnapshotState, initial
from headrace.model.errors import HeadraceError
from headrace.observe import pidfile

__all__ = ["Next", "SinkSeen", "SourceSeen", "observe"]

_BOOT_MS = 180_000


@dataclass(frozen=True, slots=True)
class Next:
    """The first record a sink has not settled.

    Args:
        commit_ms: When it was committed, by the source's clock.
        snapshot: Whether it was read by a snapshot; its time then bounds nothing.
    """

    commit_ms: int
    snapshot: bool


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
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkSeen:
    """What was seen of a sink.

    Args:
        entry: Its registration.
        paused: Whether it was told to pause.
        progress: The engine's word; None when there is none yet.
        engine: ``absent``, ``starting``, ``ready``, ``silent`` or ``stopped``.
        following: Topic → the first record not settled, for topics that have one.
        now_ms: This machine's clock, which also stamps progress.
    """

    entry: SinkEntry
    paused: bool
    progress: SinkProgress | None
    engine: str
    following: Mapping[str, Next]
    now_ms: int


def observe(context: Context, kafka: Kafka) -> tuple[list[SourceSeen], list[SinkSeen]]:
    """Look at all sources, then at all sinks.

    A heartbeat with commit time T was produced after everything committed before T; so a sink that
    has settled up to ends read *after* that heartbeat shows its tables as of T.
    """
    registry = Registry(context.registry)
    sources = [_source(context, registry, kafka, entry) for entry in registry.sources()]
    by_name = {source.entry.name: source for source in sources}
    return sources, [_sink(context, kafka, entry, by_name[entry.source]) for entry in registry.sinks()]


def _source(context: Context, registry: Registry, kafka: Kafka, entry: SourceEntry) -> SourceSeen:
    capture = capture_of(context, entry)
    topics = [table.topic for table in entry.tables]
    silent: list[str] = []
    connector: ConnectorState | None = None
    hold: Hold | None = None
    gap = entry.gap or ""
    try:
        hold = source_of(context, entry).hold(capture)
    except HeadraceError as error:
        silent.append(error.message)
    try:
        with Connect(context.connect_url, patience=2.0) as connect:
            connector = connect.state(capture.connector)
            if hold is not None and not gap and (gap := gap_between(connect, entry, hold, connector)):
                registry.gap(entry.name, gap)
    except HeadraceError as error:
        silent.append(error.message)
    beat: int | None = None
    ends: Mapping[tuple[str, int], tuple[int, int]] | None = None
    ids: Mapping[str, str] | None = None
    loaded = entry.loaded_ms is not None
    try:
        if not loaded and initial(kafka, capture).state is SnapshotState.COMPLETED:
            registry.loaded(entry.name)
            loaded = True
        beats = kafka.tail(capture.topic(capture.heartbeat), 1)
        beat = _commit_ms(beats[0]) if beats else None
        ends = kafka.ends(topics)
        ids = kafka.ids(topics)
    except HeadraceError as error:
        silent.append(error.message)
    now = hold.now_ms if hold else _now_ms()
    return SourceSeen(entry, connector, hold, loaded, gap, beat, ends, ids, now, tuple(silent))


def _sink(context: Context, kafka: Kafka, entry: SinkEntry, source: SourceSeen) -> SinkSeen:
    progress, now_ms = read_progress(context.progress, entry.name), _now_ms()
    try:
        paused = load_pipeline(context.pipelines / f"{entry.name}.json").paused
    except OSError:
        paused = False
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
    return SinkSeen(entry, paused, progress, _engine(context), following, now_ms)


def _engine(context: Context) -> str:
    """Return the engine's state; between its start and its first word it is starting."""
    told = engine_state(context.progress)
    pid_file = context.run / "engine.pid"
    try:
        started_ms = int(pid_file.stat().st_mtime * 1000)
    except OSError:
        return str(told["state"])
    fresh = told.get("updated_ms", 0) < started_ms and _now_ms() - started_ms < _BOOT_MS
    return "starting" if fresh and pidfile.alive(pid_file) else str(told["state"])


def _next(record: Mapping[str, Any]) -> Next:
    read = (record.get("source") or {}).get("snapshot") not in (None, "false", False)
    return Next(_commit_ms(record) or 0, read)


def _earlier(known: Next | None, other: Next) -> Next:
    return other if known is None or other.commit_ms < known.commit_ms else known


def _commit_ms(record: Mapping[str, Any]) -> int | None:
    value = (record.get("source") or {}).get("ts_ms")
    return int(value) if value is not None else None


def _now_ms() -> int:
    return int(time.time() * 1000)
