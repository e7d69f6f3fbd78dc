"""Recover a source whose history has a gap: a new life of it is read beside what the sinks serve.

Nothing is emptied first. The slot, the topics and the connector's positions are made anew under a higher
epoch, so that every row that is read wins over what a store has. Rows of an earlier epoch that are left when
a sink has settled all of it are gone from the source, and are removed. An interrupted recovery goes on where
it was when the same command is given again; until then the source stays ``resync_required``.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

from sqlalchemy import delete

from connectors.base import Hold
from headrace.control.alone import alone
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.debts import Debts
from headrace.control.differences import Differences
from headrace.control.entries import RecoveryEntry, VerdictEntry
from headrace.control.failover import refuse_moved
from headrace.control.gap import find_gap
from headrace.control.history import moved
from headrace.control.kafka import Kafka
from headrace.control.pipelines import working_on
from headrace.control.recovery.beside import Beside
from headrace.control.recovery.hand_over import hand_over
from headrace.control.recovery.job import Job, Say
from headrace.control.recovery.large import read_large
from headrace.control.recovery.left_out import LeftOut, tell
from headrace.control.recovery.new_life import BEGUN, begin_life, keep_digests, or_give_up
from headrace.control.recovery.ready import refuse_unready
from headrace.control.recovery.sweep import sweep
from headrace.control.registry import Registry, SinkEntry, SourceEntry, now_ms
from headrace.control.remedies import another_key
from headrace.control.remedies import recover as again
from headrace.control.streaming import wait_streaming
from headrace.model.errors import HeadraceError, SourceError, StackError, UsageError, naming

__all__ = ["LeftOut", "Recovered", "Recovery", "plan", "recover"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What :func:`recover` would do.

    Args:
        source: The source.
        reason: What is wrong with it; empty when nothing is known to be.
        unfinished: Where an interrupted recovery would go on; empty when there is none.
        tables: Tables that would be read anew, all of the source's.
        rows: About how many rows, by the database's statistics.
        sinks: Sinks that would take them.
        refused: Why it would not begin, with what mends that; None when it would.
    """

    source: str
    reason: str
    unfinished: str
    tables: tuple[str, ...]
    rows: int
    sinks: tuple[str, ...]
    refused: HeadraceError | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**told, "refused": self.refused.as_dict() if self.refused else None}


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery has mended.

    Args:
        source: The source.
        tables: What is other than before, by sink and table. What people changed meanwhile counts, too.
        left_out: Tables that a sink's target has kept from being mended there, with what mends them now.
    """

    source: str
    tables: tuple[Differences, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def wrong(self) -> int:
        """Return how many rows were missing, had other values, or should not have been there."""
        return sum(found.missing + found.other + found.removed for found in self.tables)

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {
            "source": self.source,
            "wrong": self.wrong,
            "tables": [asdict(found) for found in self.tables],
            "left_out": [asdict(one) for one in self.left_out],
        }


def plan(context: Context, name: str) -> Recovery:
    """Return what :func:`recover` would do; changes nothing."""
    registry = Registry(context.registry)
    entry = registry.source(name)
    tables = [table.schema.table for table in entry.tables]
    with registry.reading() as session:
        run = session.get(RecoveryEntry, name)
    return Recovery(
        source=name,
        reason=_reason(context, entry),
        unfinished=run.phase if run else "",
        tables=tuple(map(str, tables)),
        rows=sum(source_of(context, entry).estimate_rows(tables).values()),
        sinks=tuple(sink.name for sink in registry.sinks(name)),
        refused=_refusal(context, entry, begun=run is not None),
    )


def _refusal(context: Context, entry: SourceEntry, *, begun: bool) -> HeadraceError | None:
    try:
        _refuse(context, entry, begun=begun)
    except SourceError as error:
        return error
    return None


def recover(context: Context, name: str, *, say: Say = lambda _: None) -> Recovered:
    """Begin a new life of the source and bring every sink to it; return when every sink is right.

    A table whose target at one sink refuses stops nothing else: it is left out there, and status says so.
    A sink that does not answer stops no other either: the others are made right, and the same command
    goes on with it.

    Raises:
        SourceError: When the database does not answer, a table is gone or its key is another, the
            connector fails, or the database went back meanwhile. What is served stays as it is; the same
            command goes on.
        SinkError: When a sink is at rest or its store does not answer; the same command goes on.
        UsageError: When another recovery of the source is under way (``RECOVER_RUNNING``).
    """
    registry = Registry(context.registry)
    registry.source(name)
    with _only(context, name), alone(context, name, f"`headrace recover {name}`", say):
        job = _begin(context, registry, name, say)
        with ExitStack() as working:
            for sink in job.sinks:
                working.enter_context(working_on(context, sink.name, f"`headrace recover {name}`", say))
            working.enter_context(or_give_up(job))
            if job.run.phase == "stopping":
                keep_digests(job)
                job.advance("beginning")
            if job.run.phase in ("reading", "sweeping") and _is_another(job):
                say("the database failed over or went back since: it is read once more")
                job.advance("beginning")
            elif job.run.phase in ("reading", "sweeping") and (lost := _is_lost(job)):
                say(f"changes are lost once more, so it is read once more: {lost}")
                job.advance("beginning")
            if job.run.phase == "beginning":
                reading_ms = begin_life(job)
                flushed = _hold(job).flushed
                job.advance("reading", reading_ms=reading_ms, gap=job.source.gap, flushed=flushed, whole={})
            hand_over(job)
        if job.run.phase == "reading":
            with Connect(context.connect_url) as connect:
                connect.revive(capture_of(context, job.source).connector)
            _wait_streaming(job)
            read_large(job, partial(_refuse_another, job))
            topics = [table.topic for table in job.source.tables]
            ends = [
                [*place, high] for place, (_, high) in Kafka(context.kafka_bootstrap).ends(topics).items()
            ]
            job.advance("sweeping", ends=ends, flushed=_still_the_same(job))
        found, left_out = sweep(job)
        _still_the_same(job)
        job.refuse_left()
        left_out = _finish(job, left_out)
    done = Recovered(name, tuple(found), tuple(left_out))
    told = [f"{one.table} at {one.sink}" for one in left_out]
    registry.note(f"source {name}", "recovered", wrong=done.wrong, left_out=told)
    return done


def _hold(job: Job) -> Hold:
    return source_of(job.context, job.source).hold(capture_of(job.context, job.source))


def _still_the_same(job: Job) -> int | None:
    """Return where the database's log ends now; whoever watches it keeps no positions during a recovery.

    Raises:
        SourceError: When it is no longer the database that was read (``SOURCE_FAILED_OVER``), or an earlier
            state of it (``RECOVER_AGAIN``).
    """
    hold = _hold(job)
    refuse_moved(job.source, hold, f"headrace recover {job.name}")
    if _ends_earlier(job, hold):
        raise _again(job)
    before: int | None = job.run.plan.get("flushed")
    return before if hold.flushed is None else hold.flushed


def _refuse_another(job: Job) -> None:
    """Refuse to go on with a database that is another one than the new life has begun with."""
    _still_the_same(job)
    if job.source.gap != job.run.plan.get("gap", job.source.gap):
        raise _again(job)


def _ends_earlier(job: Job, hold: Hold) -> bool:
    return hold.flushed is not None and hold.flushed < (job.run.plan.get("flushed") or 0)


def _again(job: Job) -> SourceError:
    job.advance("beginning")
    return SourceError(
        f"The database went back once more while {job.name} was recovered.",
        code="RECOVER_AGAIN",
        hint=f"headrace recover {job.name}",
    )


def _is_another(job: Job) -> bool:
    """Return whether the new life has read from a server that is no longer the database, or ahead of it."""
    hold = _hold(job)
    noted = job.source.gap != job.run.plan.get("gap", job.source.gap)
    return moved(job.source, hold) or _ends_earlier(job, hold) or noted


def _is_lost(job: Job) -> str:
    """Return why changes are lost since the new life began: its slot is gone, say; empty when none are."""
    entry = job.source
    entry.gap = None  # what it is recovered from; nobody writes this copy back
    try:
        return find_gap(job.context, entry)
    except StackError:  # who needs Connect asks it again
        return ""


def _wait_streaming(job: Job) -> None:
    again = f"headrace recover {job.name}"
    try:
        wait_streaming(job.context, job.name, again=again, say=job.say)
    except SourceError:
        with suppress(StackError), Connect(job.context.connect_url) as connect:
            if connect.state(capture_of(job.context, job.source).connector).connector == "ABSENT":
                job.advance("beginning")  # Connect has lost it, and only a new life makes another one
        raise


@contextmanager
def _only(context: Context, name: str) -> Iterator[None]:
    """Keep other recoveries of the source away."""
    context.run.mkdir(parents=True, exist_ok=True)
    with (context.run / f"recover-{name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"A recovery of {name} is under way in another process.",
                code="RECOVER_RUNNING",
                hint="`headrace lag` says how it does; wait for it, or end that process and run this again.",
            ) from None
        yield


def _begin(context: Context, registry: Registry, name: str, say: Say) -> Job:
    """Return the recovery that was interrupted, or a new one; from here on the source is not green."""
    entry = registry.source(name)
    with registry.reading() as session:
        run = session.get(RecoveryEntry, name)
    _refuse(context, entry, begun=run is not None)  # also before the sinks' queries are stopped
    job = Job(context, name, registry, say)
    if run is not None:
        say(f"going on with the recovery that was interrupted: {run.phase}")
        return job
    registry.gap(entry, _reason(context, entry) or BEGUN)
    sinks = [sink.name for sink in registry.sinks(name)]
    with registry.begin() as session:
        session.add(RecoveryEntry(source=name, phase="stopping", begun_ms=now_ms(), plan={"sinks": sinks}))
    registry.note(f"source {name}", "recovery began")
    return job


def _refuse(context: Context, entry: SourceEntry, *, begun: bool) -> None:
    """Refuse what could not be ended; of one that has begun, only what has changed since."""
    _refuse_other_tables(context, entry)
    if not begun:
        refuse_unready(context, entry)


def _reason(context: Context, entry: SourceEntry) -> str:
    try:
        return entry.gap or find_gap(context, entry)
    except HeadraceError:
        return ""


def _refuse_other_tables(context: Context, entry: SourceEntry) -> None:
    known = [table.schema for table in entry.tables]
    sinks = Registry(context.registry).sinks(entry.name)
    declared = {schema.table: schema.key for schema in known if schema.declared}
    with naming(entry.name):
        found = source_of(context, entry).catalogue([schema.table for schema in known], declared)
    for before, now in zip(known, found, strict=True):
        if before.key != now.key:
            raise SourceError(
                f"The key of {now.table} is ({', '.join(now.key)}) now and was ({', '.join(before.key)}).",
                code="SOURCE_KEY_CHANGED",
                hint=another_key(entry, sinks, now.table, between=[again(entry.name)]),
            )


def _finish(job: Job, left_out: Sequence[LeftOut]) -> list[LeftOut]:
    """Take back what stood against the source before the new life began, and tell what stands now.

    Returns what is left out, with the commands that mend it now.
    """
    source, sinks, begun_ms = job.source, job.sinks, job.run.plan["reading_ms"]
    if source.gap != job.run.plan.get("gap", source.gap):
        raise _again(job)
    # Before the source's own word goes: nobody is to take a table for whole that is left out.
    beside = Beside(job)
    left_out = beside.of(left_out)
    for one in left_out:
        tell(job.registry, source, one)
    beside.date()
    with job.registry.begin() as session:
        session.get_one(SourceEntry, job.name).gap = None
        for sink in sinks:
            # What a follower has noted since is not of before: rows read until then lack it.
            found = session.get_one(SinkEntry, sink.name)
            since = {topic for topic, at in found.incomplete_ms.items() if at >= begun_ms}
            found.incomplete = {topic: end for topic, end in found.incomplete.items() if topic in since}
        session.execute(
            delete(VerdictEntry).where(VerdictEntry.source == job.name, VerdictEntry.last_ms < begun_ms)
        )
        session.delete(session.get_one(RecoveryEntry, job.name))
    Debts(job.context, job.registry, job.name).forget_before(begun_ms)
    shutil.rmtree(job.digests("").parent, ignore_errors=True)
    beside.begin()
    return left_out
