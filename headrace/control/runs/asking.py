"""What the connector is asked for by a run, and what has to be so before it is asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from connectors.base import Capture, Source
from headrace.control.capture import source_of
from headrace.control.first_load import note_loaded
from headrace.control.fitness import in_words_of, unfit_now
from headrace.control.opened import opened_sink
from headrace.control.progress import read_progress
from headrace.control.registry import ResnapshotEntry, SinkEntry, SourceTableEntry, now_ms
from headrace.control.runs.job import Job
from headrace.control.runs.left_out import TablesUnread, leave_out, tell, why_unfit
from headrace.control.runs.repository import ACTIVE, Phase, active, all_of, change
from headrace.control.runs.shapes import columns_now, orders_now
from headrace.control.runs.start import marks_of
from headrace.control.snapshot import Told
from headrace.control.verdicts import LEFT_OUT, LEFT_TO_RUN, standing
from headrace.control.watcher import look_now
from headrace.model.errors import HeadraceError, SinkError, SourceError, UsageError, named
from headrace.model.finding import Finding
from headrace.model.key import Key
from headrace.model.schema import TableId
from headrace.observe.failpoints import hit

__all__ = [
    "STOPPED_WITHIN_S",
    "ask",
    "ask_again",
    "asked_for",
    "first_marks",
    "refuse_hidden",
    "unasked",
    "until_confirmed",
]

_log = logging.getLogger("headrace")

STOPPED_WITHIN_S = 20.0
_POLL_S = 0.3
_QUIET_S = 120.0


def refuse_hidden(job: Job) -> None:
    """Refuse to go on when our role does not see every row: what is not read would be taken for gone.

    Raises:
        TablesUnread: With the code of what is wrong, such as ``SOURCE_ROW_SECURITY``.
    """
    tables = [table.schema.table for table in job.tables(job.run)]
    if hidden := source_of(job.context, job.source).rights_now(tables):
        raise _refusal(job, hidden)


def _leave_out_unfit(job: Job, source: Source) -> None:
    """Take tables that would be read wrong out of a run that may leave some out, and name them in its plan.

    One that has begun to read may.

    Raises:
        SourceError: With the code of what is wrong, such as ``SOURCE_VALUES``, when the tables were named by
            a person, when what it has done to one of them would be forgotten, or when no table is left.
    """
    run = job.run
    mine = asked_for(job, run) if run.plan["marks"] else job.tables(run)
    if not job.tables(run):
        raise SourceError(
            "No table of this run is captured any more.",
            code="SOURCE_TABLE_MISSING",
            hint=f"headrace resnapshot abort {job.name}",
        )
    unfit = unfit_now(job.registry, job.source, source, mine)
    if not unfit:
        return
    if run.plan["marks"]:
        if not leave_out(job, source, dict.fromkeys(unfit)):
            raise _refusal(job, unfit)
        return
    rest = [table.topic for table in mine if table.schema.table not in unfit]
    done = {name for tables in run.counts.get("swept", {}).values() for name in tables}
    filled = {topic for topics in run.plan.get("shadows", {}).values() for topic in topics}
    touched = done & set(map(str, unfit)) or filled - set(rest)
    if not run.plan.get("whole") or not rest or touched:
        raise _refusal(job, unfit)
    left_out = run.plan["left_out"] | in_words_of(run.source, unfit)
    rows = source.estimate_rows([table.schema.table for table in mine if table.topic in rest])
    told = {"topics": rest, "left_out": left_out, "estimate": sum(rows.values())}
    topics, entry = {table.schema.table: table.topic for table in mine}, job.source
    out = {topics[table]: why_unfit(run.source, found) for table, found in unfit.items()}
    change(job.registry, job.name, told, also=lambda session: tell(session, entry, out))


def _refusal(job: Job, unfit: Mapping[TableId, Finding]) -> TablesUnread:
    finding, source = next(iter(unfit.values())), job.run.source
    why = {table: why_unfit(source, found) for table, found in unfit.items()}
    hint = named(finding.hint, source=source)
    rest = [table for table in job.tables(job.run) if table.schema.table not in unfit]
    if rest or not why_unfit(source, finding).alone:  # else there will be nothing to go on with
        hint = f"{hint} -- then: headrace resnapshot resume {job.name}"
    return TablesUnread(finding.message, code=finding.code, hint=hint, tables=why)


def ask(job: Job, source: Source, capture: Capture) -> None:
    """Ask the connector for the run's tables, or for the rows that are to be read once more.

    Raises:
        SourceError: When a table cannot be read, or not whole.
        Aborted: When somebody has asked for that.
        Paused: The same; what it would have asked for is not asked for then.
    """
    _until_loaded(job, capture)
    _stop_others(job, source, capture)
    _until_quiet(job, source, capture)
    if not job.run.plan["marks"]:
        until_confirmed(job, source, capture)  # which may take long, and what is looked at next may change
    _leave_out_unfit(job, source)
    run = job.run
    if not run.plan["marks"]:
        shadows = _prepare(job, run)
        look_now(job.context, run.source)  # what is found before the run begins is healed by it
        until_confirmed(job, source, capture)
        begun_ms = job.registry.moment(run.source)  # what is found from here on may lie behind the marks
        topic = capture.notifications
        low = job.kafka.ends([topic]).get((topic, 0), (0, 0))[1]
        marks = {table.topic: first_marks(job, table) for table in job.tables(run)}
        plan = {
            **unasked(run.id),
            "marks": marks,
            "heard_from": low,
            "shadows": shadows,
            "again": {},
            "goes": {},
            "sent_up_to": {},
            "done": [],
            "failed": [],
            "orders": {},
            "columns": columns_now(job, source, capture),
        }
        run = change(job.registry, job.name, plan, phase=Phase.READING, begun_ms=begun_ms, counts={})
        hit("run.noted", "")
    wanted, again = asked_for(job, run), run.plan.get("again", {})
    rows = {
        table.schema.table: [Key.of(parts) for parts in keys]
        for table in wanted
        if (keys := again.get(table.topic))
    }
    if wanted:
        job.refuse_rest()
        orders, sent = orders_now(job, source, capture, [table for table in wanted if not again])
        # Whoever dies from here on may have asked, and rows may come in another order when another goes on.
        change(job.registry, job.name, {"orders": orders, "sent_up_to": sent, "stopping": True})
        after = {t.schema.table: sent[t.topic][0] for t in wanted if t.topic in sent}
        source.request_snapshot(capture, [t.schema.table for t in wanted], run.plan["signal"], rows, after)
    hit("run.requested", "")
    change(job.registry, job.name, {"asked": True, "stopping": False})
    hit("run.asked", "")


def asked_for(job: Job, run: ResnapshotEntry) -> list[SourceTableEntry]:
    """Return the tables that the run's request to the connector is about."""
    again, done = run.plan.get("again"), run.plan.get("done", ())
    return [
        table for table in job.tables(run) if (table.topic in again if again else table.topic not in done)
    ]


def unasked(run: str) -> dict[str, object]:
    """Return what a run's plan says while nothing is asked of the connector.

    Each request has a name of its own: what the connector tells of an earlier one is not this one's.
    """
    return {"asked": False, "signal": f"{run}-{now_ms()}"}


def ask_again(job: Job, rows: Mapping[str, Sequence[Key]]) -> None:
    """Have only these rows of some topics be asked for the next time."""
    again = {topic: [list(key.parts) for key in keys] for topic, keys in rows.items()}
    change(job.registry, job.name, {"again": again, **unasked(job.name)})


def first_marks(job: Job, table: SourceTableEntry) -> list[int]:
    """Return the end of the table's topic; its beginning where all that happened since is told of."""
    marks = marks_of(job.kafka, job.source, table)
    codes = {found.code for found in standing(job.registry, job.run.source) if found.topic == table.topic}
    if codes != {LEFT_TO_RUN} or any(low for low, _ in job.kafka.ends([table.topic]).values()):
        return marks
    return [0] * len(marks)


def _prepare(job: Job, run: ResnapshotEntry) -> dict[str, list[str]]:
    """Make the targets that are missing; return sink → topics of which a shadow is to be filled."""
    shadows: dict[str, list[str]] = {}
    for entry in job.registry.sinks(run.source):
        if entry.name not in run.plan["sinks"]:
            continue
        mine = [table for table in job.tables(run) if table.topic in entry.tables]
        unusable = [table.topic for table in mine if _is_unusable(job, entry, table)]
        try:
            for topic in _refused_by(entry, mine):
                unusable += [] if topic in unusable else [topic]
        except HeadraceError as error:
            # The others are read for all the same; this one applies what is read once its store lets us in.
            _log.warning("run %s: %s is not prepared: %s (%s)", run.id, entry.name, error.message, error.code)
        if unusable:
            shadows[entry.name] = unusable
    return shadows


def _refused_by(entry: SinkEntry, tables: Sequence[SourceTableEntry]) -> Iterator[str]:
    """Make a sink's targets that are missing; yield the topics of those that cannot be as they should."""
    with opened_sink(entry) as sink:
        for table in tables:
            try:
                sink.prepare(table.schema)
            except SinkError as error:
                if error.table is None:
                    raise
                yield table.topic


def _is_unusable(job: Job, entry: SinkEntry, table: SourceTableEntry) -> bool:
    """Return whether the engine, or a recovery, has found that the table's target has to be made anew."""
    told = ((found.code, found.sink, found.topic) for found in standing(job.registry, job.run.source))
    if (LEFT_OUT, entry.name, table.topic) in told:
        return True
    progress = read_progress(job.context.progress, entry.name)
    counters = progress.tables.get(str(table.schema.table)) if progress is not None else None
    trouble = (counters.trouble if counters is not None else None) or {}
    target = not str(trouble.get("code", "KAFKA_")).startswith("KAFKA_")
    return target and "resnapshot" in str(trouble.get("hint", ""))


def _until_loaded(job: Job, capture: Capture) -> None:
    """Wait until the initial snapshot is over: one that is begun again passes over what was asked before."""
    while not note_loaded(job.registry, job.kafka, capture, job.source):
        job.refuse_rest()
        job.say("waits until the initial snapshot is complete")
        time.sleep(_POLL_S)
    job.say("")


def _until_quiet(job: Job, source: Source, capture: Capture) -> None:
    """Wait until the connector reads nothing beside the stream; stop what ended runs have left behind."""
    told, stopped, since = Told(job.kafka, capture, 0), "", time.monotonic()
    while (busy := told.busy()) is not None and time.monotonic() - since < _QUIET_S:
        job.refuse_rest()
        if told.news:
            since = time.monotonic()
        if busy != stopped and _left_behind(job, busy):
            source.steer_snapshot(capture, "stop", f"{job.name}-q{now_ms()}")
            stopped, since = busy, time.monotonic()
        if busy == stopped and time.monotonic() - since > STOPPED_WITHIN_S:
            break
        job.say("waits until the connector has ended another incremental snapshot")
        time.sleep(_POLL_S)
    job.say("")


def until_confirmed(job: Job, source: Source, capture: Capture) -> None:
    """Wait until the connector has noted its place behind all that is committed by now.

    A connector that dies tells again what it had not confirmed. A row whose delete nobody was told of would
    come back with its insert, behind the marks of the run that has found it gone.

    Raises:
        Aborted: When somebody has asked for that.
        Paused: The same.
    """
    hold = source.hold(capture)
    committed = hold.flushed
    while committed is not None and hold.confirmed is not None and hold.confirmed < committed:
        job.refuse_rest()
        job.say("waits until the connector has confirmed what it has told")
        time.sleep(_POLL_S)
        hold = source.hold(capture)
    job.say("")


def _stop_others(job: Job, source: Source, capture: Capture) -> None:
    """Stop what runs that are over, end or rest have asked for: the connector may not have heard of it yet.

    While it is our turn nobody else reads, but whoever did may have died before the connector was stopped.
    """
    left = [
        run
        for run in all_of(job.registry, job.run.source)
        if run.id != job.name
        and (run.plan.get("asked") or run.plan.get("stopping"))
        and not (run.plan.get("ends") or run.plan.get("former"))
        and (Phase(run.phase) not in ACTIVE or run.wanted)
    ]
    if left:
        source.steer_snapshot(capture, "stop", f"{job.name}-o{now_ms()}")
    for run in left:
        with suppress(UsageError):  # one that a recovery has ended is changed no more
            change(job.registry, run.id, {**unasked(run.id), "stopping": False})


def _left_behind(job: Job, signal: str) -> bool:
    """Return whether a run that is over, or is to end, has asked for this snapshot, or one that rests."""
    if signal == job.run.plan.get("signal"):
        change(job.registry, job.name, unasked(job.name))  # of one name the connector hears one request only
    for run in active(job.registry, job.run.source):
        if run.id != job.name and signal == run.plan.get("signal", run.id):
            if not run.wanted:
                return False
            change(job.registry, run.id, unasked(run.id))  # its process has died; it would have done so
    return bool(signal)
