"""Looks at every source again and again, so that what its database does not tell is seen by us.

Each look compares the catalogue with what the look before saw, which the registry keeps: what happened while
nobody looked is found by the next one. What it finds becomes a verdict upon the table, which stands until a
run that began later has read the table anew; see :mod:`headrace.control.verdicts`.

Whoever reads a table anew looks first, by :func:`look_now`, and takes the run's beginning after that: then
what the look found is healed by the run, and what happens while it reads is found by a later look.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy import select

from connectors.base import Capture, Hold
from connectors.watch import Sight, Trouble, Watch
from headrace.config.logs import begin_log
from headrace.config.pipeline import EngineSpec
from headrace.control.beats import read_beats
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect, ConnectorState
from headrace.control.context import Context
from headrace.control.emptied import UNREAD, Doubt, Emptied, ends_now, held, in_doubt, judged, note_doubt
from headrace.control.ends import read_ends
from headrace.control.entries import WatchEntry
from headrace.control.failover import open_fence
from headrace.control.first_load import begin_runs, begun_again, read_again
from headrace.control.follow import note_unfollowed
from headrace.control.gap import gap_between
from headrace.control.history import moved
from headrace.control.kafka import Kafka
from headrace.control.keep_out import keep_out
from headrace.control.left_resting import have_go_on
from headrace.control.looks import BEAT, LOOKS_EVERY_S, beat, note_look
from headrace.control.newcomers import listed
from headrace.control.registry import Registry, SourceEntry, living, now_ms
from headrace.control.remedies import another_key, read_anew
from headrace.control.revival import Revival
from headrace.control.unattended import moved_on
from headrace.control.unfollowed import COLUMNS_CHANGED, unfollowed
from headrace.control.verdicts import REFRESHED, State, Verdict, over, record, standing
from headrace.model.errors import HeadraceError, StackError
from headrace.model.pasted import command
from headrace.model.schema import TableId

__all__ = ["between_looks", "look_now", "main"]

_log = logging.getLogger("headrace")

_SOURCES_EVERY_S = 5.0
_CONNECT_EVERY = 5
"""Every so many looks Connect is asked, too, while the connector holds its slot."""
_GIVES_WAY_EVERY_S = 2.0
_LONGEST_PAUSE_S = 8.0
_HANGS_AFTER_S = 120.0
"""A look that takes so long will not end: the process ends, and its guardian starts another."""
_KEEP_EVERY_MS = 10_000
_PASSING = ("ROW_SECURITY", UNREAD, COLUMNS_CHANGED)
"""Codes that leave nothing wrong behind once their cause is gone."""


def look_now(context: Context, name: str) -> list[Trouble]:
    """Look once at a source, note what is found, and return it.

    A run that reads tables anew calls it before it takes the time of its beginning.

    Raises:
        UsageError: When there is no source of that name (``SOURCE_UNKNOWN``).
        SourceError: When the database does not answer.
    """
    registry = Registry(context.registry)
    registry.source(name)  # no file is made for a name that nobody has
    with between_looks(context, name):
        entry = registry.source(name)
        watch = source_of(context, entry).watch(capture_of(context, entry))
        try:
            return list(_look(context, registry, Kafka(context.kafka_bootstrap), entry, watch).troubles)
        finally:
            watch.close()


def _look(context: Context, registry: Registry, kafka: Kafka, entry: SourceEntry, watch: Watch) -> Sight:
    """Look once at a source, as it is registered since no other look is under way."""
    with registry.reading() as session:
        kept = session.get(WatchEntry, entry.name)
    before = Emptied.of(kept.emptied if kept else {})
    ends = ends_now(kafka, before)
    began = time.monotonic()
    sight = watch.look(kept.facts if kept else {})
    if sight.gave_way:
        _broken_off(registry, entry.name)
    if sight.back:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        registry.gap(entry, f"{sight.back} (seen at {at} UTC)", anew=True)
    doubts = in_doubt(registry, entry, before, sight)
    behind = _note(context, registry, entry, sight, doubts)
    note_look(context, entry.name, time.monotonic() - began)
    note_unfollowed(context.run, entry.name, behind)
    read_ends(registry, kafka, entry)
    beats, misread = read_beats(context, registry, kafka, entry, kept.beats if kept else None)
    doubts = judged(registry, kafka, entry, before, doubts, sight)
    if kept is None or misread or doubts != before.doubts or _news(kept, sight):
        emptied = held(entry, before, ends, doubts, sight).as_dict()
        with registry.begin() as session:
            found = living(session, entry)
            if found is not None:
                seen: dict[str, Any] = {"facts": dict(sight.facts), "others": listed(sight.others)}
                seen |= {"beats": beats, "emptied": emptied, "at_ms": now_ms()}
                session.merge(WatchEntry(source=entry.name, **seen))
                if found.left_out is None:  # a source of before that was noted
                    found.left_out = listed(sight.others)
    return sight


def _broken_off(registry: Registry, source: str) -> None:
    why = "a statement of the application waited for it"
    registry.note(f"source {source}", "connector's reading broken off", why=why)


def _news(kept: WatchEntry, sight: Sight) -> bool:
    """Return whether a look is worth being kept: clocks and later marks alone are so once in a while."""
    if sight.back:
        return True
    before, now = (
        {
            name: {
                key: value is not None if key == "mark" else value
                for key, value in fact.items()
                if key not in ("horizon", "counts")
            }
            for name, fact in facts.items()
        }
        for facts in (kept.facts, sight.facts)
    )
    if kept.others != listed(sight.others):
        return True
    return before != now or abs(now_ms() - kept.at_ms) > _KEEP_EVERY_MS  # clocks are set back


@contextmanager
def between_looks(context: Context, name: str) -> Iterator[None]:
    """Let a look at a source end first, in whatever process, and none begin meanwhile."""
    context.run.mkdir(parents=True, exist_ok=True)
    with (context.run / f"watch-{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _note(
    context: Context, registry: Registry, entry: SourceEntry, sight: Sight, doubts: Mapping[str, Doubt]
) -> set[str]:
    """Turn what was seen into verdicts; return the sinks that have columns to follow."""
    topics = {table.schema.table: table.topic for table in entry.tables}
    seen: set[tuple[str, str]] = set()
    for trouble in sight.troubles:
        if trouble.table not in topics:
            continue  # the look began before it was taken out
        topic = topics[trouble.table]
        doubted = trouble.unless is not None and topic in doubts
        if doubted and (topic, trouble.code) in seen:
            continue  # a table may have very many partitions
        seen.add((topic, trouble.code))
        if doubted:
            note_doubt(registry, entry, topic, trouble)
        else:
            record(registry, entry, [topic], trouble.code, _verdict(registry, entry.name, trouble))
    rekeyed = {topic for topic, code in seen if code == "KEY_CHANGED"}
    behind = unfollowed(context, registry, entry, sight, rekeyed)
    for verdict in standing(registry, entry.name):
        found = (verdict.topic, verdict.code) in seen or (verdict.sink, verdict.topic) in behind
        if verdict.code in _PASSING and not found:
            over(registry, entry.name, verdict.topic, verdict.code, sink=verdict.sink)
    return {sink for sink, _ in behind}


def _verdict(registry: Registry, source: str, trouble: Trouble) -> Verdict:
    if not trouble.lost:
        return Verdict(State.DEGRADED, trouble.reason, trouble.statement)
    if trouble.code == "KEY_CHANGED":
        remedy = another_key(registry.source(source), registry.sinks(source), trouble.table)
        return Verdict(State.FAILED, trouble.reason, remedy)
    again = f"headrace source refresh {source}"
    if trouble.code in ("TABLE_GONE", "TABLE_ATTACHED"):
        again = command("headrace", "source", "tables", "remove", source, str(trouble.table))
    elif trouble.code not in REFRESHED and not _is_for_good(trouble):
        entry = registry.source(source)
        again = read_anew(entry, [t.schema for t in entry.tables if t.schema.table == trouble.table])
    remedy = f"{trouble.statement} -- then: {again}" if trouble.statement else again
    return Verdict(State.RESYNC_REQUIRED, trouble.reason, remedy)


def _is_for_good(trouble: Trouble) -> bool:
    """Return whether the log will not tell all columns again, so that they have to be left out."""
    return trouble.code == "IDENTITY_WEAK" and not trouble.statement


class _Guard(threading.Thread):
    """Looks at one source until it is told to stop."""

    def __init__(self, context: Context, name: str) -> None:
        super().__init__(name=f"watch-{name}", daemon=True)
        self._context, self._source = context, name
        self._registry = Registry(context.registry)
        self.over = threading.Event()
        self.began: float | None = None
        """When the look under way began, monotonic; None between looks."""
        self._looks = 0
        self._revival = Revival()
        self._kafka = Kafka(context.kafka_bootstrap)
        self._watch: Watch | None = None
        self._kept_out: Mapping[TableId, tuple[str, ...]] = {}

    def run(self) -> None:
        threading.Thread(target=self._give_way, name=f"way-{self._source}", daemon=True).start()
        try:
            self._look_on()
        finally:  # also when a look has ended as nobody foresaw: another guard takes over
            self.over.set()
            self._let_go()

    def _look_on(self) -> None:
        pause, capture = LOOKS_EVERY_S, None
        while not self.over.wait(pause):
            self.began = time.monotonic()
            try:
                with between_looks(self._context, self._source):
                    entry = self._registry.source(self._source)
                    now = capture_of(self._context, entry)
                    if self._watch is None or now != capture:
                        self._let_go()
                        capture, self._watch = now, source_of(self._context, entry).watch(now)
                    sight = _look(self._context, self._registry, self._kafka, entry, self._watch)
                pause = LOOKS_EVERY_S
                self._heed(entry, now, sight)
                begin_runs(self._context, self._registry, self._kafka, entry.name)
                have_go_on(self._context, self._registry, entry.name)
            except (HeadraceError, OSError) as error:
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                _log.warning("the watcher does not see %s: %s", self._source, error)
                if not isinstance(error, StackError):  # the password may be another one by now
                    self._let_go()
            self.began = None

    def _let_go(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _give_way(self) -> None:
        """Let the application go first, also while Kafka or Connect keep the looks waiting."""
        while not self.over.wait(_GIVES_WAY_EVERY_S):
            watch = self._watch
            try:
                if watch is not None and watch.give_way():
                    _broken_off(self._registry, self._source)
            except HeadraceError:  # a database that does not answer is told by the next look
                continue
            except Exception as error:  # noqa: BLE001 - nobody else does this
                _log.warning("the application of %s may have to wait: %s", self._source, error)

    def hangs(self) -> bool:
        """Return whether a look has been under way for too long."""
        began = self.began
        return began is not None and time.monotonic() - began > _HANGS_AFTER_S

    def _heed(self, entry: SourceEntry, capture: Capture, sight: Sight) -> None:
        told = False
        try:
            told = self._keep_out(sight)
        finally:  # a gap is noted also while the connector cannot be told what to leave out
            self._gap(entry, capture, sight, goes_on=told)

    def _keep_out(self, sight: Sight) -> bool:
        """Have the connector leave out what is left out, whatever its name is now; return whether it does."""
        now = sight.renamed
        if now in ({}, self._kept_out) or keep_out(self._context, self._registry, self._source, now):
            self._kept_out = now
        return now in ({}, self._kept_out)

    def _gap(self, entry: SourceEntry, capture: Capture, sight: Sight, *, goes_on: bool) -> None:
        """Note a gap in the source's history as soon as it is there.

        With ``goes_on`` a connector that rests is let read on where that is due.
        """
        self._looks += 1
        if goes_on and not entry.gap and entry.loaded_ms is None:
            read_again(self._context, self._registry, self._kafka, entry.name)
        hold = sight.hold
        steady = hold.active and not hold.lost and not _elsewhere(entry, hold)
        if goes_on and entry.gap and moved(entry, hold):
            with Connect(self._context.connect_url, patience=2.0) as connect:
                open_fence(self._context, connect, entry, hold)
        if entry.gap or sight.back or (steady and self._looks % _CONNECT_EVERY):
            return
        try:
            with Connect(self._context.connect_url, patience=2.0) as connect:
                state = connect.state(capture.connector)
                why = gap_between(self._context, connect, entry, hold, state, acts=goes_on)
                why = why or begun_again(self._registry, self._kafka, capture, entry)
                if goes_on and not why:
                    self._revive(connect, capture.connector, state, loading=entry.loaded_ms is None)
        except StackError:
            if why := moved_on(self._registry, self._kafka, capture, entry, hold):
                self._registry.gap(entry, why)
            raise
        if why:
            self._registry.gap(entry, why)

    def _revive(self, connect: Connect, connector: str, state: ConnectorState, *, loading: bool) -> None:
        if self._revival.is_due(state, loading=loading):
            self._registry.note(f"source {self._source}", "connector restarted", why=state.trace)
            connect.restart(connector)


def _elsewhere(entry: SourceEntry, hold: Hold) -> bool:
    """Return whether the log is on another timeline, or ends before where it was seen."""
    shorter = None not in (entry.flushed, hold.flushed) and (hold.flushed or 0) < (entry.flushed or 0)
    return moved(entry, hold) or shorter


def _stop(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def main(context_file: str, engine_file: str) -> int:
    """Watch every source of an installation until SIGTERM."""
    signal.signal(signal.SIGTERM, _stop)
    begin_log(logging.WARNING)
    context = Context.load(
        Path(context_file).read_text(encoding="utf-8"),
        lambda: EngineSpec.model_validate_json(Path(engine_file).read_bytes()),
    )
    registry = Registry(context.registry)
    guards: dict[str, _Guard] = {}
    guardian = os.getppid()
    alive = Path(context_file).with_name(BEAT)
    while os.getppid() == guardian:  # an orphan would watch for ever
        beat(alive)
        with registry.reading() as session:
            names = set(session.scalars(select(SourceEntry.name)))
        for name in names - guards.keys():
            guards[name] = _Guard(context, name)
            guards[name].start()
        for name in [name for name, guard in guards.items() if not guard.is_alive()]:
            guards.pop(name).over.set()
        for name in guards.keys() - names:
            guards.pop(name).over.set()
        if hanging := [name for name, guard in guards.items() if guard.hangs()]:
            _log.error("a look at %s does not end: the watcher starts anew", ", ".join(hanging))
            return 1
        time.sleep(_SOURCES_EVERY_S)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
