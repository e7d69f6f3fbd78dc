"""The first load of a source: when it is complete, and what is to be done when it was broken off on its way.

The connector's initial snapshot reads small tables. It is faster than a run, but no table streams before it
has ended, and one that is broken off begins again. So large tables are left to a run, which goes on where it
was. When a snapshot was begun again, nothing tells of rows that the first attempt had read and the database
deleted before the next one: the tables are read anew.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Collection
from typing import TextIO

from connectors.base import Capture
from headrace.control.alone import somebody_works
from headrace.control.arrived import unarrived
from headrace.control.capture import capture_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Adding, Registry, ResnapshotEntry, SourceEntry
from headrace.control.remedies import read_anew, take_in
from headrace.control.runner import ensure_engine
from headrace.control.runs.markers import there
from headrace.control.runs.repository import Phase, active, all_of, topics_of
from headrace.control.runs.start import hand_over, start, wait
from headrace.control.runs.words import in_words
from headrace.control.snapshot import INITIAL, SnapshotState, initial
from headrace.control.verdicts import (
    FIRST_LOAD,
    LEFT_TO_RUN,
    RESTARTED,
    UNARRIVED,
    State,
    Verdict,
    first_loaded,
    record,
    reword,
    standing,
)
from headrace.model.errors import SourceError
from headrace.model.schema import TableId

__all__ = [
    "begin_runs",
    "begun_again",
    "being_taken_in",
    "leave_to_run",
    "note_loaded",
    "read_again",
    "wait_loaded",
]

Say = Callable[[str], None]
_WHY_AGAIN = "the first snapshot was broken off and began again"
_WHY_LARGE = "the first load of large tables"
_BEGINS_WITHIN_S = 120.0
_POLL_S = 0.2


def note_loaded(registry: Registry, kafka: Kafka, capture: Capture, entry: SourceEntry) -> bool:
    """Return whether the initial snapshot is complete, and remember it.

    When the connector began it more than once, every table gets a verdict before it counts as loaded.

    Raises:
        HeadraceError: When Kafka does not answer.
    """
    if entry.loaded_ms is not None:
        return True
    snapshot = initial(kafka, capture, entry.heard or 0)
    if snapshot.state is not SnapshotState.COMPLETED:
        return False
    left = _topics(registry, entry, LEFT_TO_RUN) | _topics(registry, entry, FIRST_LOAD)
    read = {table.topic: table for table in entry.tables if table.topic not in left}
    again = read if snapshot.attempts > 1 else ()
    found = [(topic, RESTARTED, _begun_again(entry)) for topic in again]
    for topic, why in unarrived(kafka, read.values(), snapshot).items():
        verdict = Verdict(State.RESYNC_REQUIRED, why, read_anew(entry, [read[topic].schema]))
        found.append((topic, UNARRIVED, verdict))
    first_loaded(registry, entry, found)
    return True


def begun_again(registry: Registry, kafka: Kafka, capture: Capture, entry: SourceEntry) -> str:
    """Return why changes are lost when the connector has read everything once more after the first load.

    It does so when Connect has lost its position, and streams from there: what it had not told is skipped.

    Raises:
        HeadraceError: When Kafka does not answer.
    """
    if entry.loaded_ms is None:
        return ""
    since = entry.heard
    said, high = kafka.committed(capture.notifications, since or 0)
    if since is not None and high <= since:
        return ""
    kinds = [str(one.get("type")) for one in said if one.get("aggregate_type") == INITIAL]
    if since is None:  # the words of the first load itself come first
        if "SKIPPED" in kinds and "COMPLETED" not in kinds:
            return "the connector had passed the first snapshot over, and streamed from there"
        kinds = kinds[kinds.index("COMPLETED") + 1 :] if "COMPLETED" in kinds else []
    if {"STARTED", "COMPLETED"}.intersection(kinds):  # a connector that goes on says SKIPPED
        return "Connect had lost the position up to which it has read, and the connector began anew"
    registry.heard(entry, high)
    return ""


def read_again(context: Context, registry: Registry, kafka: Kafka, name: str) -> bool:
    """Have the connector read the tables when it has passed its initial snapshot over; return whether it had.

    It notes a position with its first word. One that ends before its first row is committed takes that up
    when it starts again, for one that was noted after the snapshot, and would stream only. What was told
    until now stays in the topics: rows of it that are deleted before the next snapshot are looked for.

    Raises:
        HeadraceError: When Kafka or Connect does not answer.
    """
    if registry.source(name).loaded_ms is not None:
        return False
    with (context.run / f"load-{name}.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entry = registry.source(name)
        capture = capture_of(context, entry)
        lock.seek(0)
        begun = lock.read() == str(entry.created_ms)  # and its process has died before the connector went on
        passed_over = _is_passed_over(kafka, capture, entry)
        if entry.loaded_ms is not None or not (begun or passed_over):
            return False
        with Connect(context.connect_url) as connect:
            state = connect.state(capture.connector).connector
            if begun and state in ("RUNNING", "FAILED"):  # somebody has had it go on, or all was done
                record(registry, entry, _told(kafka, entry), RESTARTED, _begun_again(entry))
                _write(lock, "")
            ours = begun and entry.adding != Adding.GOING.value and not somebody_works(context, name)
            goes_on = ours and state == "STOPPED"
            if not goes_on and (not passed_over or state in ("PAUSED", "STOPPED", "ABSENT")):
                return False
            _write(lock, str(entry.created_ms))
            connect.halt(capture.connector, again=f"headrace source resume {name}")
            record(registry, entry, _told(kafka, entry), RESTARTED, _begun_again(entry))
            registry.heard(entry, kafka.committed(capture.notifications)[1], in_gap=True)
            connect.resume(capture.connector)
            _write(lock, "")
    registry.note(f"source {name}", "initial snapshot begun again", why="it was passed over")
    return True


def _write(file: TextIO, text: str) -> None:
    """Have a file say this and nothing else, also after a crash."""
    file.truncate(0)
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def _told(kafka: Kafka, entry: SourceEntry) -> list[str]:
    """Return the topics that have had records."""
    topics = [table.topic for table in entry.tables]
    return sorted({topic for (topic, _), (_, high) in kafka.ends(topics).items() if high})


def _is_passed_over(kafka: Kafka, capture: Capture, entry: SourceEntry) -> bool:
    return initial(kafka, capture, entry.heard or 0).state is SnapshotState.PASSED_OVER


def _begun_again(entry: SourceEntry) -> Verdict:
    reason = f"{_WHY_AGAIN}: rows that were deleted meanwhile may be left; they are being looked for"
    return Verdict(State.DEGRADED, reason, read_anew(entry))


def leave_to_run(registry: Registry, entry: SourceEntry, tables: Collection[TableId]) -> None:
    """Note that the initial snapshot does not read these tables; the watcher has a run do it."""
    for table in entry.tables:
        if table.schema.table in tables:
            record(registry, entry, [table.topic], LEFT_TO_RUN, _being_read())


def begin_runs(context: Context, registry: Registry, kafka: Kafka, name: str) -> None:
    """Begin the runs that a first load needs, each once: of tables left to one, and of those begun again.

    How a run does that reads what tables had that came later is told, too: a person has begun that.

    Raises:
        HeadraceError: When a run cannot begin now; the next call tries again.
    """
    codes, runs = {found.code for found in standing(registry, name)}, active(registry, name)
    if not runs and codes.isdisjoint((FIRST_LOAD, LEFT_TO_RUN, RESTARTED)):
        return
    entry = registry.source(name)
    if entry.gap:
        return
    _tell_taken_in(context, registry, entry)
    for run in runs:
        if not there(context, run.id):  # who asked for it died before it was handed over
            hand_over(context, run)
    _begin_left(context, registry, kafka, entry)
    _begin_again(context, registry, entry)


def wait_loaded(context: Context, name: str, say: Say) -> None:
    """Return when every row that large tables had is in Kafka, and in the sinks that there are.

    Raises:
        HeadraceError: What ended their run, that it is paused, that none has begun
            (``FIRST_LOAD_NOT_BEGUN``), or that the first snapshot has brought less than it has read
            (``FIRST_LOAD_UNARRIVED``). The source streams all the same.
    """
    registry = Registry(context.registry)
    deadline, over = time.monotonic() + _BEGINS_WITHIN_S, set[str]()
    while topics := _topics(registry, registry.source(name), LEFT_TO_RUN):
        runs = {run.id for topic in topics if (run := _run_of(registry, name, topic)) is not None}
        for run_id in sorted(runs - over):
            wait(context, run_id, see=in_words(say))
            over.add(run_id)
            deadline = time.monotonic() + _BEGINS_WITHIN_S
        if time.monotonic() > deadline:
            entry = registry.source(name)
            left = [table.schema for table in entry.tables if table.topic in topics]
            told = ", ".join(str(schema.table) for schema in left)
            raise SourceError(
                f"No run has begun to read {told} of {name} within {_BEGINS_WITHIN_S:.0f} s.",
                code="FIRST_LOAD_NOT_BEGUN",
                hint=read_anew(entry, left),
            )
        ensure_engine(context)
        time.sleep(_POLL_S)
    _refuse_unarrived(registry, registry.source(name))


def _refuse_unarrived(registry: Registry, entry: SourceEntry) -> None:
    wrong = {found.topic: found.reason for found in standing(registry, entry.name) if found.code == UNARRIVED}
    mine = [table for table in entry.tables if table.topic in wrong]
    if mine:
        told = "; ".join(f"{table.schema.table}: {wrong[table.topic]}" for table in mine)
        raise SourceError(
            f"{entry.name} is added and streams, but its first load is not whole. {told}.",
            code=UNARRIVED,
            hint=read_anew(entry, [table.schema for table in mine]),
        )


_BROKEN_OFF = (Phase.ABORTED.value, Phase.FAILED.value)


def _begin_left(context: Context, registry: Registry, kafka: Kafka, entry: SourceEntry) -> None:
    topics = _topics(registry, entry, LEFT_TO_RUN)
    runs = {topic: _run_of(registry, entry.name, topic) for topic in topics}
    unread = {topic for topic, run in runs.items() if run is None}
    if unread and note_loaded(registry, kafka, capture_of(context, entry), entry):
        start(context, entry.name, tables=_tables(entry, unread), why=_WHY_LARGE, spare=True, waits=False)
    for table in entry.tables:
        if (run := runs.get(table.topic)) is not None:
            verdict = _being_read(run)
            if run.phase in _BROKEN_OFF:
                verdict = _broken_off(run, read_anew(entry, [table.schema]))
            reword(registry, entry.name, table.topic, LEFT_TO_RUN, verdict)


def _tell_taken_in(context: Context, registry: Registry, entry: SourceEntry) -> None:
    """Say of tables that came later how the run does that is to read their rows."""
    for found in standing(registry, entry.name):
        table = next((table for table in entry.tables if table.topic == found.topic), None)
        if found.code != FIRST_LOAD or table is None:
            continue
        works = somebody_works(context, entry.name)  # before the runs: it begins one before it ends
        # Of an earlier life of the table there may be runs, too.
        since = [run for run in all_of(registry, entry.name) if run.begun_ms >= found.first_ms]
        mine = [run for run in since if found.topic in topics_of(run)]
        run = next((run for run in mine if run.phase not in _BROKEN_OFF), next(iter(mine), None))
        command = take_in(entry.name, [table.schema.table])
        verdict = being_taken_in(command)
        if run is not None and run.phase in _BROKEN_OFF:
            verdict = _broken_off(run, command)
        elif run is not None and run.wanted == "pause":
            verdict = _paused(run)
        elif run is None and any(str(table.schema.table) in one.plan.get("left_out", {}) for one in since):
            continue  # the run has said why
        elif run is None and not works:
            reason = "rows may be missing: the command that takes the table in was broken off"
            verdict = Verdict(State.DEGRADED, reason, command)
        reword(registry, entry.name, found.topic, FIRST_LOAD, verdict)


def being_taken_in(command: str) -> Verdict:
    """Return what is said of a table that came later, while a run reads its rows.

    Args:
        command: What took it in; given again, it goes on.
    """
    return Verdict(State.SNAPSHOTTING, "the rows that the table had are being read", command)


def _broken_off(run: ResnapshotEntry, remedy: str) -> Verdict:
    reason = f"rows may be missing: run {run.id}, which was to read them, is {run.phase}"
    return Verdict(State.DEGRADED, reason, remedy)


def _paused(run: ResnapshotEntry) -> Verdict:
    reason = f"run {run.id}, which reads the rows that the table has, is paused"
    return Verdict(State.PAUSED, reason, f"headrace resnapshot resume {run.id}")


def _being_read(run: ResnapshotEntry | None = None) -> Verdict:
    if run is not None and run.wanted == "pause":
        return _paused(run)
    remedy = f"headrace resnapshot wait {run.id}" if run else "headrace resnapshot list"
    return Verdict(State.SNAPSHOTTING, "a run reads the rows that the table has", remedy)


def _run_of(registry: Registry, name: str, topic: str) -> ResnapshotEntry | None:
    """Return the run that reads the table, or else the newest that was to."""
    reading = (run for run in active(registry, name) if topic in topics_of(run))
    asked = (run for run in all_of(registry, name) if run.why == _WHY_LARGE and topic in topics_of(run))
    return next(reading, None) or next(asked, None)


def _begin_again(context: Context, registry: Registry, entry: SourceEntry) -> None:
    verdicts = [found for found in standing(registry, entry.name) if found.code == RESTARTED]
    busy = any(run.wanted != "pause" for run in active(registry, entry.name))
    if not verdicts or not registry.sinks(entry.name) or busy:
        return
    since = min(found.first_ms for found in verdicts)
    runs = [run for run in all_of(registry, entry.name) if run.why == _WHY_AGAIN and run.begun_ms >= since]
    if runs:  # whatever became of it, a person decides what is next
        for found in verdicts if runs[0].phase in _BROKEN_OFF else ():
            verdict = _broken_off(runs[0], read_anew(entry))
            reword(registry, entry.name, found.topic, RESTARTED, verdict)
        return
    tables = _tables(entry, {found.topic for found in verdicts})
    start(context, entry.name, tables=tables, why=_WHY_AGAIN, queue=True, spare=True, waits=False)


def _topics(registry: Registry, entry: SourceEntry, code: str) -> set[str]:
    return {found.topic for found in standing(registry, entry.name) if found.code == code}


def _tables(entry: SourceEntry, topics: Collection[str]) -> list[TableId]:
    return [table.schema.table for table in entry.tables if table.topic in topics]
