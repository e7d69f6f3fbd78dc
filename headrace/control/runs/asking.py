"""What the connector is asked for by a run, and what has to be so before it is asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from connectors.base import Capture, Source
from connectors.registry import goes_on_after
from headrace.control.capture import capture_now, settings_of, source_of
from headrace.control.first_load import note_loaded
from headrace.control.fitness import in_words_of, unfit_now
from headrace.control.opened import opened_sink
from headrace.control.progress import read_progress
from headrace.control.registry import ResnapshotEntry, SinkEntry, SourceTableEntry, now_ms
from headrace.control.runs.job import Job
from headrace.control.runs.left_out import TablesUnread, leave_out, tell, why_unfit
from headrace.control.runs.repository import Phase, active, change
from headrace.control.runs.start import marks_of
from headrace.control.snapshot import Told
from headrace.control.verdicts import LEFT_OUT, LEFT_TO_RUN, standing
from headrace.control.watcher import look_now
from headrace.model.errors import HeadraceError, SinkError, SourceError, named
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
    "read_otherwise",
    "refuse_hidden",
    "sent_of",
    "unasked",
    "until_confirmed",
]

_log = logging.getLogger("headrace")

_Sent = dict[str, tuple[str, int]]
"""Topic → the last key that is sent, and about how many rows were sent up to it."""

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
    """
    _until_loaded(job, capture)
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
            "sent": {},
            "done": [],
            "failed": [],
        }
        plan["columns"] = _columns(_now(job, source, capture))
        run = change(job.registry, job.name, plan, phase=Phase.READING, begun_ms=begun_ms, counts={})
        hit("run.noted", "")
    wanted = asked_for(job, run)
    rows = {
        table.schema.table: [Key.of(parts) for parts in keys]
        for table in wanted
        if (keys := run.plan.get("again", {}).get(table.topic))
    }
    if wanted:
        try:
            orders, sent = _still_sent(job, _now(job, source, capture), run.plan.get("sent", {}))
        except SourceError:  # a table is gone, or has no key just now
            orders, sent = {}, {}
        change(job.registry, job.name, {"orders": orders, "sent": sent})
        after = {t.schema.table: sent[t.topic][0] for t in wanted if t.topic in sent}
        source.request_snapshot(capture, [t.schema.table for t in wanted], run.plan["signal"], rows, after)
    hit("run.requested", "")
    change(job.registry, job.name, {"asked": True})
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


def _now(job: Job, source: Source, capture: Capture) -> Capture:
    """Return the run's tables as the database has them now."""
    mine = tuple(table.schema for table in job.tables(job.run))
    return capture_now(source, replace(capture, tables=mine))


def _columns(now: Capture) -> dict[str, list[str]]:
    """Return topic → the columns that a table has."""
    return {
        now.topic(schema.table): [*schema.by_name, *schema.extra.get("excluded", ())] for schema in now.tables
    }


def _orders(now: Capture) -> dict[str, list[Any]]:
    """Return topic → in which order the rows of a table are read."""
    return {now.topic(schema.table): [list(schema.key), schema.extra.get("order")] for schema in now.tables}


def _still_sent(job: Job, now: Capture, sent: _Sent) -> tuple[dict[str, list[Any]], _Sent]:
    """Return in which order tables are read now, and what is sent of those that were read so until now.

    The key of a table has to be the one that is registered: by that it is asked for what comes after.
    """
    orders, before, kind = _orders(now), job.run.plan.get("orders", {}), job.source.kind
    keys = {table.topic: table.schema.key for table in job.tables(job.run)}
    told = {now.topic(schema.table): schema for schema in now.tables if goes_on_after(kind, schema)}
    same = {topic for topic, one in told.items() if keys.get(topic) == one.key}
    return orders, {t: one for t, one in sent.items() if t in same and before.get(t) == orders[t]}


def read_otherwise(job: Job, source: Source, capture: Capture) -> bool:
    """Return whether a table has lost a column, or has another order of rows, since the run has asked."""
    columns: dict[str, list[str]] = job.run.plan.get("columns", {})
    orders: dict[str, list[Any]] = job.run.plan.get("orders", {})
    try:
        now = _now(job, source, capture)
    except SourceError as error:
        if error.code in ("SOURCE_TABLE_MISSING", "SOURCE_NO_PRIMARY_KEY"):
            return False  # reading once more would not mend that
        raise
    there, ordered = _columns(now), _orders(now)
    lost = any(not set(names) <= set(there.get(topic, names)) for topic, names in columns.items())
    return lost or any(order != ordered.get(topic, order) for topic, order in orders.items())


def sent_of(
    job: Job,
    source: Source,
    capture: Capture,
    tables: Sequence[SourceTableEntry],
    told: Mapping[str, tuple[str, int]],
) -> _Sent:
    """Return from where on tables that are half read are to be read when the run goes on.

    A part is read once more when the columns change meanwhile; such a table is read from its beginning. So is
    one whose rows come in another order now: the connector has told a key of the former one.

    Args:
        job: The run.
        source: Its database.
        capture: What is captured of it.
        tables: Those that the connector was asked for.
        told: Table → the last key that is sent, and how many parts are.

    Returns:
        Topic → the last key, and about how many rows were sent up to it.
    """
    sent: _Sent = dict(job.run.plan.get("sent", {}))
    try:
        now = _now(job, source, capture)
    except SourceError:  # a table is gone, or has no key just now
        return {}
    before, there = job.run.plan.get("columns", {}), _columns(now)
    part = settings_of(job.source).snapshot_chunk_rows
    for table in tables:
        topic, end = table.topic, told.get(str(table.schema.table))
        if before.get(topic) != there.get(topic):
            sent.pop(topic, None)
        elif end is not None:
            sent[topic] = end[0], (sent[topic][1] if topic in sent else 0) + end[1] * part
    return _still_sent(job, now, sent)[1]


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
        job.heed()
        job.say("waits until the initial snapshot is complete")
        time.sleep(_POLL_S)
    job.say("")


def _until_quiet(job: Job, source: Source, capture: Capture) -> None:
    """Wait until the connector reads nothing beside the stream; stop what ended runs have left behind."""
    told, stopped, since = Told(job.kafka, capture, 0), "", time.monotonic()
    while (busy := told.busy()) is not None and time.monotonic() - since < _QUIET_S:
        job.heed()
        plan = job.run.plan
        if plan["marks"] and busy == plan.get("signal"):
            break  # who worked on the run before died when it had asked, and had not noted that
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
    """
    hold = source.hold(capture)
    committed = hold.flushed
    while committed is not None and hold.confirmed is not None and hold.confirmed < committed:
        job.heed()
        job.say("waits until the connector has confirmed what it has told")
        time.sleep(_POLL_S)
        hold = source.hold(capture)
    job.say("")


def _left_behind(job: Job, signal: str) -> bool:
    """Return whether a run that is over has asked for this snapshot, or one that rests, which asks again."""
    for run in active(job.registry, job.run.source):
        if run.id != job.name and signal == run.plan.get("signal", run.id):
            if run.wanted != "pause":
                return False
            change(job.registry, run.id, unasked(run.id))  # its process has died; it would have done so
    return bool(signal)
