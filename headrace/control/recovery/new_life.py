"""The first steps: queries are stopped, what sinks hold is noted, and a new life of the source begins."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from connectors.base import Capture
from headrace.control.capture import capture_now, capture_of, source_of
from headrace.control.connect import Connect
from headrace.control.differences import keep
from headrace.control.entries import RecoveryEntry, SinkEntry, SourceEntry
from headrace.control.epochs import next_epochs
from headrace.control.kafka import Kafka
from headrace.control.opened import opened_sink, tables_of
from headrace.control.pipelines import rewrite, spec_path, told_of, withhold
from headrace.control.recovery.job import Job
from headrace.control.recovery.large import set_large_apart
from headrace.control.recovery.ready import refuse_unready
from headrace.control.registry import Registry
from headrace.control.remedies import recover as again
from headrace.control.remedies import then
from headrace.control.runs.repository import leave_behind
from headrace.control.runs.shadowing import discard_of_sink
from headrace.control.topics import topics_of
from headrace.control.watcher import look_now
from headrace.model.errors import SourceError

__all__ = ["BEGUN", "begin_life", "keep_digests", "note_held", "or_give_up"]

BEGUN = "its recovery has begun and is not finished"
"""The gap of a source with which nothing else is known to be wrong."""
_GONE_S = 60.0


def keep_digests(job: Job) -> None:
    """Stop the sinks' queries and note what each sink holds, to tell later what was wrong."""
    _stop_sinks(job)
    for sink in job.sinks:
        if sink.name not in job.left:
            with job.apart(sink.name):
                note_held(job, sink)


def note_held(job: Job, sink: SinkEntry) -> None:
    """Note what a sink holds of the former life, unless that is done."""
    path = job.digests(sink.name)
    if path.exists():
        return
    job.say(f"{sink.name}: noting what it holds, to tell later what was wrong")
    with opened_sink(sink) as store:
        unread = keep(path, store, [table.schema for table in tables_of(job.registry, sink)])
    for table, why in unread.items():
        job.say(f"{sink.name}: {table} cannot be read, so nobody will know what was wrong: {why}")


def _stop_sinks(job: Job) -> None:
    for sink in job.sinks:
        if spec_path(job.context, sink.name).exists() and sink.name not in job.left:
            with job.apart(sink.name), told_of(sink.name):
                job.say(f"{sink.name}: stopping its query; what it holds goes on being served")
                withhold(job.context, sink.name)


@contextmanager
def or_give_up(job: Job) -> Iterator[None]:
    """Have the sinks go on as before when the block ends early and the former life is not given up yet."""
    try:
        yield
    except BaseException:
        if not job.has_begun:
            _give_up(job)
        raise


def _give_up(job: Job) -> None:
    job.say("nothing has begun: the sinks go on as before")
    for sink in job.sinks:
        with suppress(FileNotFoundError, ValueError):  # the engine tells of one that is damaged
            rewrite(job.context, sink.name, lambda _: {"withheld": False})
    shutil.rmtree(job.digests("").parent, ignore_errors=True)
    with job.registry.begin() as session:
        source = session.get_one(SourceEntry, job.name)
        if source.gap == BEGUN:
            source.gap = None
        session.delete(session.get_one(RecoveryEntry, job.name))
    job.registry.note(f"source {job.name}", "recovery given up before it began")


def begin_life(job: Job) -> int:
    """Make slot, topics and positions anew, under a higher epoch; repeated as a whole when interrupted.

    Returns the time before which everything that is wrong with a table is mended by what is read now.
    """
    _stop_sinks(job)
    context, name, registry, entry = job.context, job.name, job.registry, job.source
    source, capture = source_of(context, entry), capture_of(context, entry)
    kafka = Kafka(context.kafka_bootstrap)
    with Connect(context.connect_url) as connect:
        # Servers that do not answer are met before anything is given up.
        connect.state(capture.connector)
        kafka.names()
    refuse_unready(context, entry)
    job.begins()
    for sink in job.sinks:  # while the runs are known; the topics that shadows are filled from go
        if sink.name not in job.left:
            with job.apart(sink.name):
                discard_of_sink(context, sink.name)
    with Connect(context.connect_url) as connect:
        job.say("stopping the connector; its positions are forgotten")
        connect.halt(capture.connector, again=f"headrace recover {name}")
        job.say("making slot, publication and topics anew")
        with then("SOURCE_SLOT_BUSY", again(name)):
            left = source.teardown(capture)
        if left.why:
            raise SourceError(
                left.why, code="SOURCE_DENIED", hint=left.hint or f"headrace source check {name}"
            )
        topics = topics_of(capture)
        kafka.delete([topic.name for topic in topics])
        _until_gone(kafka, {topic.name for topic in topics})
        kafka.create(topics)
        source.setup(capture)
        mine = [table.topic for table in entry.tables]
        ids, epochs = kafka.ids(mine), next_epochs(registry, kafka, mine)
        hold = source.hold(capture)
        with registry.begin() as session:
            found = session.get_one(SourceEntry, name)
            found.loaded_ms, found.system, found.timeline = None, hold.system, hold.timeline
            found.flushed = found.read = found.heard = None
            for table in found.tables:
                table.topic_id, table.epoch = ids[table.topic], epochs[table.topic]
            leave_behind(session, name)
        # The watcher would take the new publication for one that somebody else has changed.
        look_now(context, name)
        # Columns may have other types than before the gap. What a later look finds has a later time.
        now = capture_now(source, capture)
        capture = replace(now, timeline=hold.timeline, system=hold.system)
        _register(registry, name, capture)
        large = set_large_apart(job, source, capture)
        reading_ms = registry.moment(name)
        others = f", but for {', '.join(map(str, large))}, which a run is to read" if large else ""
        job.say(f"starting the connector: it reads every table{others}")
        connect.create(capture.connector, source.properties(capture, large))
        connect.halt(capture.connector, again=f"headrace recover {name}")
        connect.resume(capture.connector)
    return reading_ms


def _register(registry: Registry, name: str, capture: Capture) -> None:
    """Note the tables' columns as they are now."""
    now = {schema.table: schema for schema in capture.tables}
    with registry.begin() as session:
        for table in session.get_one(SourceEntry, name).tables:
            table.table = now[table.schema.table].as_dict()


def _until_gone(kafka: Kafka, names: set[str]) -> None:
    deadline = time.monotonic() + _GONE_S
    while left := kafka.names() & names:
        if time.monotonic() > deadline:
            raise SourceError(
                f"Kafka still has the topic {min(left)} after it was deleted.",
                code="RECOVER_TOPIC_STAYS",
                hint="Something may make it again, a producer for instance; then run the same command again.",
            )
        time.sleep(0.2)
