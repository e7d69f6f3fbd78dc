"""The reading half of a run: the connector is asked, watched, slowed down, paused and stopped.

The connector reads one table after another, whoever asked for it, and tells all of it under the name of the
last request. So one run reads at a time, and the next is asked for when the connector has told that the one
before is over: else a table that is half read would count as read since the next run's marks.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import IO, Any

from connectors.base import Capture, Source
from connectors.registry import first_told
from headrace.control.arrived import too_few
from headrace.control.capture import capture_of, settings_of, source_of
from headrace.control.connect import Connect
from headrace.control.registry import ResnapshotEntry, now_ms
from headrace.control.runs.asking import (
    STOPPED_WITHIN_S,
    ask,
    ask_again,
    asked_for,
    refuse_hidden,
    unasked,
)
from headrace.control.runs.job import Aborted, Job, Paused
from headrace.control.runs.left_out import TablesUnread, Why, leave_out
from headrace.control.runs.pace import Pace, Strain
from headrace.control.runs.repository import (
    Phase,
    active,
    change,
    count,
    overtaken,
    take_over,
    topics_left,
    topics_of,
)
from headrace.control.runs.shadowing import give_up
from headrace.control.runs.shapes import read_otherwise, sent_now
from headrace.control.runs.start import MAX_LATENCY_MS, marks_of
from headrace.control.runs.untold import Untold
from headrace.control.runs.wishes import ending, may_rest, want_end
from headrace.control.snapshot import Snapshot, SnapshotState, Told
from headrace.control.verdicts import EVERY_SINK, UNTIL_READ, healed, over, told_again
from headrace.model.errors import HeadraceError, SourceError
from headrace.model.schema import TableId, declared_keys
from headrace.observe.failpoints import hit

__all__ = ["note_read", "note_told", "read", "stop_reading"]

_POLL_S = 0.3
_NO_KEY = "NO_PRIMARY_KEY"
"""What the connector says of a table without a key; it looks at a table's key when a change is told of it."""
_CONNECT_S = 1.0
"""Connect takes longer to come back, so one that was away is noticed."""


def read(job: Job) -> None:
    """Have the connector read the run's tables; return when it has read every table whole.

    One that cannot be read, or not right, is left out by name while there are others.

    Raises:
        SourceError: When it has not (``RESNAPSHOT_INCOMPLETE``, or the cause by name where it still stands,
            such as ``SOURCE_SELECT_RIGHT``).
        Aborted: When somebody has asked for that.
    """
    while True:
        with _turn(job), closing(source_of(job.context, job.source)) as source:
            if _read(job, source, capture_of(job.context, job.source)):
                return


def _read(job: Job, source: Source, capture: Capture) -> bool:
    """Have the connector read; return False when the run is to rest, and what it has asked is taken back."""
    if job.run.plan.get("stopping"):
        # What is stopped is not asked for by its name again: the connector would not hear of it.
        change(job.registry, job.name, unasked(job.name))
        _stop(job, source, capture)
        return False
    untold = Untold(job, source.whole_rows)
    while True:
        if not job.run.plan.get("asked") and not _asks(job, source, capture):
            return False
        try:
            if not _watch(job, source, capture):
                _take_back(job, source, capture)
                return False
            if not job.run.plan.get("again"):
                change(job.registry, job.name, {"done": sorted(topics_of(job.run))})
            hit("run.read", "")
            refuse_hidden(job)
            if not read_otherwise(job, source, capture):
                if not (rows := untold.rows()):
                    break
                ask_again(job, rows)
                continue
        except Aborted:
            _stop(job, source, capture)
            raise
        except SourceError as error:
            if not (read_otherwise(job, source, capture) or _key_is_back(job, source, capture, error)):
                if isinstance(error, TablesUnread) and leave_out(job, source, error.tables):
                    _take_back(job, source, capture)
                    continue
                refuse_hidden(job)  # the cause, where it still stands, says more than what came of it
                raise
        # What was asked may be under way still.
        change(job.registry, job.name, {"marks": {}, "stopping": True, **unasked(job.name)})
        untold = Untold(job, source.whole_rows)
    kafka, run = job.kafka, job.run
    ends = {table.topic: marks_of(kafka, job.source, table) for table in job.tables(run)}
    _refuse_unarrived(job, ends)
    change(job.registry, job.name, {"ends": ends}, phase=Phase.APPLYING, reason="")
    hit("run.ends", "")
    return True


def _asks(job: Job, source: Source, capture: Capture) -> bool:
    """Ask the connector, unless the run is to rest; return whether it was asked."""
    try:
        job.refuse_rest()
        ask(job, source, capture)
    except Paused:
        return False
    return True


def _refuse_unarrived(job: Job, ends: Mapping[str, list[int]]) -> None:
    """Refuse to go on when a topic has got nothing of what the connector says it has read.

    How many rows it has read is no measure: those of an attempt that was broken off count for it, too.
    """
    run, tables, told = job.run, dict[TableId, Why | None](), list[str]()
    for table in job.tables(run):
        rows = run.counts.get("read", {}).get(table.topic, 0)
        if rows and sum(ends[table.topic]) == sum(run.plan["marks"][table.topic]):
            tables[table.schema.table] = None
            told.append(f"{table.schema.table}: {too_few(rows, 0)}")
    if tables:
        raise TablesUnread(
            f"What was read has not arrived. {'; '.join(told)}.",
            code="RESNAPSHOT_INCOMPLETE",
            hint=f"headrace resnapshot resume {job.name}",
            tables=tables,
        )


def _key_is_back(job: Job, source: Source, capture: Capture, error: SourceError) -> bool:
    """Return whether the connector was started again, as it knew no key of a table that has one again."""
    if _NO_KEY not in error.message or job.run.plan.get("started_over"):
        return False
    try:
        source.catalogue([schema.table for schema in capture.tables], declared_keys(capture.tables))
    except SourceError:
        return False
    with Connect(job.context.connect_url) as connect:
        connect.start_over(capture.connector)
    change(job.registry, job.name, {"started_over": True})
    return True


def note_read(job: Job) -> None:
    """Take the word back that rows are being read: what a sink has not settled says how much it lacks.

    What another run had left unfinished of the same tables is left to this one from here on. Where no sink
    has a table nothing is left to be swept: sinks that come later begin with what the run has found.
    """
    run = job.run
    sinks = job.registry.sinks(run.source)
    served = {topic for sink in sinks for topic in sink.tables}
    swept = {topic for sink in sinks if sink.name in run.plan["sinks"] for topic in sink.tables}
    if unserved := run.plan["marks"].keys() & run.plan["ends"].keys() - served:
        # Whatever becomes of the run.
        found = {topic: [run.plan["marks"][topic], run.plan["ends"][topic]] for topic in unserved}
        change(job.registry, job.name, {"passed": {**run.plan.get("passed", {}), **found}})
    for topic in run.plan["ends"]:
        for code in UNTIL_READ:
            over(job.registry, run.source, topic, code)
        if topic not in swept:  # else it is not known before a sink is swept whether every row was read
            told_again(job.registry, run.source, topic, run.begun_ms)
        if topic not in served:
            healed(job.registry, run.source, topic, EVERY_SINK, run.begun_ms)
    for other in overtaken(job.registry, job.run):
        with ending(job.context, run.source, job.heed):
            _end(job, other)


def note_told(job: Job) -> None:
    """Note that the topics tell what they lacked, also of tables whose sinks went before they were swept."""
    run = job.run
    for topic in run.plan["ends"]:
        told_again(job.registry, run.source, topic, run.begun_ms)


def _end(job: Job, other: ResnapshotEntry) -> None:
    """End an unfinished run whose tables this one has read, unless it goes on again."""
    run = want_end(job.registry, other.id, unfinished=True)
    if Phase(run.phase) is not Phase.UNFINISHED:
        return
    try:
        give_up(job.context, other)
    except BaseException:
        may_rest(job.registry, other.id)
        raise
    take_over(job.registry, other.id, job.name)


@contextmanager
def _turn(job: Job) -> Iterator[None]:
    """Wait until no other run of the source reads, and no earlier one is at any of the tables.

    One that rests keeps nobody waiting: it waits here itself, once the connector has nothing to do for it.
    """
    with _lock_of(job) as lock:
        while True:
            plan = job.run.plan
            paused = job.heed() and not (plan.get("asked") or plan.get("stopping"))
            others = [other for other in active(job.registry, job.run.source) if other.id != job.name]
            before = _before(job, others)
            if before is None and not paused:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    reading = [other.id for other in others if other.phase == Phase.READING.value]
                    before = ", ".join(reading) or "another run"
            job.say(f"waits for run {before}" if before else "")
            time.sleep(_POLL_S)
        job.say("")
        yield


def _lock_of(job: Job) -> IO[str]:
    return (job.context.run / f"reading-{job.run.source}.lock").open("a")


def _before(job: Job, others: list[ResnapshotEntry]) -> str | None:
    run, tables, sinks = job.run, job.source.tables, job.registry.sinks(job.run.source)
    mine, place = topics_of(run), (run.asked_ms or 0, run.id)
    for other in others:
        if other.wanted == "pause":
            continue  # somebody may have it go on in a week
        if topics_left(other, tables, sinks) & mine and (other.asked_ms or 0, other.id) < place:
            return other.id
    return None


def _watch(job: Job, source: Source, capture: Capture) -> bool:
    """Return whether the connector has read all that it was asked for: not when the run is to rest."""
    plan = job.run.plan
    resting: bool | None = None  # the connector may rest since an earlier run, or since our process before
    heard = Told(job.kafka, capture, plan.get("heard_from", 0))
    tables = {str(table.schema.table): table for table in asked_for(job, job.run)}
    wanted = {name: table.topic for name, table in tables.items()}
    if not wanted:
        return True
    limits = _limits(plan)
    pace, strain = _paced(limits, source)
    with Connect(job.context.connect_url, patience=_CONNECT_S) as connect:
        while True:
            snapshot = heard.incremental(plan.get("signal", job.name))
            _refuse_trouble(job, snapshot, {name: table.schema.table for name, table in tables.items()})
            read = 0 if plan.get("again") else _note(job, snapshot, wanted, plan.get("sent_up_to", {}))
            if snapshot.state is SnapshotState.COMPLETED:
                return True
            if job.heed():
                return False
            if (wanted_now := _limits(job.run.plan)) != limits:  # a person has changed them meanwhile
                limits = wanted_now
                pace, strain = _paced(limits, source)
            rest = pace.ahead(read) or strain.look()
            trouble = _trouble_of(connect, capture)
            if trouble:
                resting = None  # a connector that starts again has forgotten that it was to rest
            elif rest != resting:
                source.steer_snapshot(capture, "pause" if rest else "resume", f"{job.name}-{now_ms()}")
                resting = rest
            job.say(trouble or strain.reason)
            time.sleep(_POLL_S)


def _limits(plan: Mapping[str, Any]) -> tuple[int | None, int]:
    """Return rows a second, and milliseconds that an answer of the database may take."""
    return plan.get("rows_per_second"), plan.get("max_latency_ms", MAX_LATENCY_MS)


def _paced(limits: tuple[int | None, int], source: Source) -> tuple[Pace, Strain]:
    rows, milliseconds = limits
    return Pace(rows), Strain(milliseconds / 1000, source.answer_seconds)


def _trouble_of(connect: Connect, capture: Capture) -> str:
    """Return why the connector does not read just now; what it was asked stays in the database's log."""
    try:
        state = connect.state(capture.connector)
    except HeadraceError as error:
        return error.message
    if state.running:
        return ""
    return f"the connector is {state.task.lower()}: {state.trace}".rstrip(": ")


def _refuse_trouble(job: Job, snapshot: Snapshot, wanted: Mapping[str, TableId]) -> None:
    trouble = {table: why for table, why in snapshot.unread(wanted).items() if table in wanted}
    if trouble or snapshot.state is SnapshotState.ABORTED:
        why = ", ".join(f"{table}: {status}" for table, status in trouble.items())
        raise TablesUnread(
            f"The snapshot of {job.run.source} was not read whole: {why or 'aborted'}.",
            code="RESNAPSHOT_INCOMPLETE",
            hint=f"headrace resnapshot resume {job.name}",
            tables={wanted[table]: None for table in trouble},
        )


def _note(job: Job, snapshot: Snapshot, wanted: dict[str, str], sent: Mapping[str, tuple[str, int]]) -> int:
    """Note how many rows of each table are read; of one under way about, by the parts that were read."""
    run, total, part = job.run, 0, settings_of(job.source).snapshot_chunk_rows
    for table, topic in wanted.items():
        rows = snapshot.scanned.get(table, snapshot.chunks.get(table, 0) * part)
        rows += sent[topic][1] if topic in sent else 0
        if rows != run.counts.get("read", {}).get(topic):
            count(job.registry, job.name, topic, read=rows)
        total += rows
    return total


def stop_reading(job: Job) -> None:
    """Have the connector stop what a run has asked it for; whoever asked may have died.

    Raises:
        HeadraceError: When the database does not answer; the next run stops it then.
    """
    plan = job.run.plan
    if not (plan.get("asked") or plan.get("stopping")) or plan.get("ends"):
        return
    with _lock_of(job) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # whoever reads now has had the connector stop first, and is not to be stopped
        with closing(source_of(job.context, job.source)) as source:
            _stop(job, source, capture_of(job.context, job.source))


def _take_back(job: Job, source: Source, capture: Capture) -> None:
    """Have the connector stop, so that it reads for others; tables that it has read whole count as read."""
    plan = job.run.plan
    told, signal = Told(job.kafka, capture, plan.get("heard_from", 0)), plan.get("signal", job.name)
    heard = told.incremental(signal)
    mine = [] if plan.get("again") else asked_for(job, job.run)
    whole = heard.scanned.keys() - heard.trouble.keys()
    done = [table.topic for table in mine if str(table.schema.table) in whole]
    schemas = {str(table.schema.table): table.schema for table in mine}

    def first(table: str, key: str) -> str:
        return first_told(job.source.kind, schemas[table], key) if table in schemas else key

    # Noted first: what is not stopped, for this process dies or the database does not answer, is so later.
    noted = {"done": plan.get("done", []) + done, "stopping": True, **unasked(job.name)}
    change(job.registry, job.name, noted)
    hit("run.unasked", "")
    if _stop(job, source, capture):
        with suppress(HeadraceError):  # then the run goes on after what it had sent before this request
            if _is_confirmed(source, capture):
                sent = sent_now(job, source, capture, mine, told.sent(signal, first))
                change(job.registry, job.name, {"sent_up_to": sent})


def _is_confirmed(source: Source, capture: Capture) -> bool:
    """Return whether the connector has noted soon that all that it has told by now is in Kafka.

    One that dies before tells it again when it has begun anew, which it says first.
    """
    deadline, hold = time.monotonic() + STOPPED_WITHIN_S, source.hold(capture)
    committed = hold.flushed
    while committed is not None and hold.confirmed is not None and hold.confirmed < committed:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
        hold = source.hold(capture)
    return committed is not None and hold.confirmed is not None


def _stop(job: Job, source: Source, capture: Capture) -> bool:
    """Have the connector stop; return whether it has said so."""
    heard = Told(job.kafka, capture, job.run.plan.get("heard_from", 0))
    source.steer_snapshot(capture, "stop", f"{job.name}-s{now_ms()}")
    change(job.registry, job.name, {"asked": False, "stopping": False})
    deadline = time.monotonic() + STOPPED_WITHIN_S
    with suppress(HeadraceError):  # the next run looks again
        while heard.busy() is not None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return heard.busy() is None
    return False
