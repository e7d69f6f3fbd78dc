"""The last step: what a sink still has of the former life is removed, once it holds all of the new one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from headrace.control.differences import Differences, compare
from headrace.control.kafka import Kafka
from headrace.control.opened import opened_sink, tables_of
from headrace.control.pipelines import is_paused
from headrace.control.progress import SinkProgress, read_progress
from headrace.control.recovery.job import Job
from headrace.control.recovery.left_out import LeftOut, Why, left_out, refusal, why
from headrace.control.registry import SinkEntry, SourceTableEntry
from headrace.control.remedies import recover
from headrace.control.rest import refuse_at_rest
from headrace.control.sink import wait_running
from headrace.control.sink_tables import trimmed
from headrace.control.sweeps import ask_sweep
from headrace.control.verdicts import UNARRIVED, State, standing
from headrace.model.errors import Retry, SinkError, SinkUnavailable
from headrace.model.life import life_of
from sinks.base import Sink

__all__ = ["sweep"]

_PATIENCE_S = 30.0
"""So long a target may be in trouble: one that was removed is made anew meanwhile, one that asks for patience
has got some."""
_SILENT_S = 120.0
"""So long a store may not answer, or ask for patience, while its query gets no further."""
_POLL_S = 0.3

_FORMER = (0,)
"""A mark before the first record of this life: what is older is of a former one."""

_Ends = Mapping[tuple[str, int], int]
"""Topic and partition → the offset after the last that has to be stored."""


def sweep(job: Job) -> tuple[list[Differences], list[LeftOut]]:
    """Wait for each sink to settle the new life; remove what it does not tell of; say what was wrong.

    One that is at rest, or whose store does not answer, is left; so is one that has not got the new life.
    """
    found: list[Differences] = []
    left: list[LeftOut] = []
    for sink in [sink for sink in job.sinks if sink.name not in job.left]:
        with job.apart(sink.name):
            if not is_paused(job.context, sink.name):
                wait_running(job.context, sink.name)
            differences, out = _sweep_sink(job, sink)
            found += differences
            left += out
            if job.has(sink.name):
                but = f", but for {', '.join(one.table for one in out)}" if out else ""
                job.say(f"{sink.name}: every row is of the database as it is now{but}")
    return found, left


def _sweep_sink(job: Job, sink: SinkEntry) -> tuple[list[Differences], list[LeftOut]]:
    tables = tables_of(job.registry, sink)
    out = _unarrived(job) | _trimmed(job, sink.name, tables) | job.left_out(sink.name)
    found: list[Differences] = []
    with opened_sink(sink) as store:
        out |= _wait_stored(job, sink.name, store, [table for table in tables if table.topic not in out])
        if not job.has(sink.name):
            return [], []
        out = _trimmed(job, sink.name, tables) | out
        job.note_whole(sink.name, (table.topic for table in tables if table.topic not in out))
        for table in tables:
            if table.topic not in out:
                said = refusal(partial(_clear, job, sink.name, table))
                said = said or _compare(job, sink.name, store, table, found)
                out |= {table.topic: said} if said is not None else {}
    source = job.source
    return found, [
        left_out(source, sink.name, table, out[table.topic]) for table in tables if table.topic in out
    ]


def _unarrived(job: Job) -> dict[str, Why]:
    """Return topic → why, of tables of which the new life has brought less than the connector has read."""
    began_ms = job.run.plan.get("reading_ms", 0)
    return {
        verdict.topic: (verdict.code, verdict.reason)
        for verdict in standing(job.registry, job.name)
        if verdict.code == UNARRIVED and verdict.last_ms >= began_ms
    }


def _trimmed(job: Job, sink: str, tables: Sequence[SourceTableEntry]) -> dict[str, Why]:
    """Return topic → why, of tables of which a sink that came late may have had no rows to apply.

    All that it has would be of the former life, and go.
    """
    kafka, found, whole = Kafka(job.context.kafka_bootstrap), dict[str, Why](), job.whole(sink)
    for topic, first in trimmed(kafka, tables, {}).items():
        if topic not in whole:
            said = f"Kafka no longer has what {topic} told before offset {first}: the sink may lack rows"
            found[topic] = "KAFKA_DATA_LOST", said
    return found


def _clear(job: Job, sink: str, table: SourceTableEntry) -> None:
    """Have the sink's query remove what is of a former life, however long it is at something else."""
    while True:
        try:
            ask_sweep(job.context, sink, table, _FORMER)
            return
        except SinkError as error:
            if error.code != "SINK_BUSY":
                raise
            job.say(f"{sink}: {error.message}")


def _compare(
    job: Job, sink: str, store: Sink, table: SourceTableEntry, found: list[Differences]
) -> Why | None:
    """Add what was wrong with a table to ``found``; return why its target cannot be right, if it cannot."""
    path = job.digests(sink)
    if not path.exists():
        return None
    try:
        found.append(compare(path, sink, store, table.schema))
    except SinkError as error:
        if error.table is None:
            raise
        if error.retry is not Retry.LATER:
            return why(error)
        found.append(Differences(sink, str(table.schema.table), 0, 0, 0, unread=error.message))
    return None


def _wait_stored(job: Job, name: str, store: Sink, tables: Sequence[SourceTableEntry]) -> dict[str, Why]:
    """Return when the store itself says that it holds the new life of the tables that are not in trouble.

    The engine's file may for a moment still tell of the offsets of the former life.

    Returns:
        Topic → what is wrong, for those whose target has been in trouble for long.

    Raises:
        SinkError: When the sink is at rest, or its store has not answered for long.
    """
    waiting = {table.topic: table for table in tables}
    ends = {(topic, n): high for topic, n, high in job.run.plan["ends"] if topic in waiting}
    since: dict[str, float] = {}
    out: dict[str, Why] = {}
    told, moved = -1, time.monotonic()
    while job.has(name):
        refuse_at_rest(job.context, name, again=recover(job.name))
        progress = read_progress(job.context.progress, name)
        troubles, now = _troubles(progress, waiting.values()), time.monotonic()
        since = {topic: since.get(topic, now) for topic in troubles}
        late = {topic: troubles[topic] for topic, began in since.items() if now - began > _PATIENCE_S}
        behind = _behind(progress, ends, waiting)
        settled = [
            waiting[topic] for topic, records in behind.items() if not records and topic not in troubles
        ]
        done = late.keys() | _stored(store, settled, ends)
        for topic, (_, message) in late.items():
            job.say(f"{name}: {waiting[topic].schema.table} is left out: {message}")
        out |= late
        waiting = {topic: table for topic, table in waiting.items() if topic not in done}
        if not waiting:
            return out
        records = sum(behind.values())
        if records and records != told:
            job.say(f"{name}: {records:,} records to apply before the sweep")
        if records != told or progress is None or progress.state != "degraded":
            told, moved = records, now
        elif now - moved > _SILENT_S:
            raise _silent(progress)
        time.sleep(_POLL_S)
    return {}


def _silent(progress: SinkProgress) -> SinkUnavailable:
    said = progress.error or {}
    message = said.get("message", "Its store does not answer.")
    return SinkUnavailable(message, code=said.get("code", "SINK_BUSY"), hint=said.get("hint", ""))


def _troubles(progress: SinkProgress | None, tables: Iterable[SourceTableEntry]) -> dict[str, Why]:
    """Return topic → what is wrong, of tables in trouble. While a query starts, it tells what was before."""
    if progress is None or progress.state == "starting":
        return {}
    found: dict[str, Why] = {}
    for table in tables:
        counters = progress.tables.get(str(table.schema.table))
        trouble = counters.trouble if counters is not None else None
        if trouble is not None and trouble["state"] != State.CATCHING_UP.value:
            found[table.topic] = trouble["code"], trouble["message"]
    return found


def _behind(progress: SinkProgress | None, ends: _Ends, topics: Iterable[str]) -> dict[str, int]:
    """Return topic → how many records the sink has not settled."""
    settled = progress.next_offsets if progress is not None else {}
    found = dict.fromkeys(topics, 0)
    for place, end in ends.items():
        if place[0] in found:
            found[place[0]] += max(0, end - settled.get(place, 0))
    return found


def _stored(store: Sink, tables: Sequence[SourceTableEntry], ends: _Ends) -> set[str]:
    """Return the topics of those tables of which the store itself says that it holds all."""
    lives = {table.topic: life_of(table.topic, table.topic_id) for table in tables}
    wanted = {(lives[topic], n): high - 1 for (topic, n), high in ends.items() if high and topic in lives}
    stored = store.progress(list(wanted)) if wanted else {}
    lacking = {life for (life, n), last in wanted.items() if stored.get((life, n), -1) < last}
    return {topic for topic, life in lives.items() if life not in lacking}
