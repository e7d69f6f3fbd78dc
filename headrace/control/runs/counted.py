"""Whether a run has seen every row of a table: counted before a sink removes those that it has not seen.

A row that our reading passed over looks like one that is gone. So the rows that a sink would keep are held
against those that the database has. Writers go on meanwhile: the sink is asked when it has all that was
committed before the count. What transactions have made and deleted that the count had not seen, up to where
the sink is by then, is told by the topic and left out of both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from connectors.base import Source
from connectors.row_count import RowCount
from headrace.control.capture import capture_of, source_of
from headrace.control.progress import read_progress
from headrace.control.registry import SourceTableEntry
from headrace.control.runs.asking import until_confirmed
from headrace.control.runs.job import Counted, Job
from headrace.control.runs.start import marks_of
from headrace.control.sweeps import ask_sweep
from headrace.model.errors import SinkError, SourceError
from headrace.model.schema import TableId

__all__ = ["NOTHING_GOES", "refuse_unseen"]

_COMES_OR_GOES = (b'"op":"c"', b'"op":"d"')
"""In a record of a row that came or went, and in few others: a column of that name may hold that value."""
NOTHING_GOES = (0, 0.0)
"""A limit with which no row is removed."""
_COUNTS = 3
"""A TRUNCATE after a count removes rows by one record; it is over before the next."""
_PATIENCE_S = 10.0
"""So long others wait for a sink that is late; it is asked again later, about the same count."""
_POLL_S = 0.2
_FIRST_REST_S = 2.0
_LONGEST_REST_S = 60.0


def refuse_unseen(job: Job, writer: str, table: SourceTableEntry, marks: Sequence[int]) -> None:
    """Refuse a sweep after which a sink would have fewer rows than the database.

    Args:
        job: The run.
        writer: The pipeline that writes to the sink's table.
        table: The table.
        marks: Of the run.

    Raises:
        SourceError: The run has passed over rows (``RESNAPSHOT_INCOMPLETE``).
        SinkError: The sink does not say, or is late (``SINK_BEHIND``).
        Aborted: Somebody has asked for the end of the run.
        Paused: The same.
    """
    rows = seen = 0
    for _ in range(_COUNTS):
        rows, seen, lacking = _look(job, writer, table, marks)
        if not lacking:
            return
    raise SourceError(
        f"{table.schema.table} has {rows:,} rows, and run {job.name} has seen {seen:,} of them: the others"
        " would be removed.",
        code="RESNAPSHOT_INCOMPLETE",
        hint=f"headrace resnapshot resume {job.name}",
    )


def _look(job: Job, writer: str, table: SourceTableEntry, marks: Sequence[int]) -> tuple[int, int, bool]:
    """Return how many rows the database has, how many the sink would keep, and whether that is too few."""
    place = writer, table.topic
    kept = job.counts.get(place) or _count(job, table)
    job.counts[place] = kept
    _until_settled(job, writer, table, kept.ends)
    del job.counts[place]
    found = ask_sweep(job.context, writer, table, marks, NOTHING_GOES, job.refuse_rest)
    if any(settled < end for settled, end in zip(found.settled, kept.ends, strict=True)):
        raise _behind(writer, table)  # its store has just gone back
    more = _more_since(job, table, kept, found.settled)
    lows = job.kafka.ends([table.topic])
    if any(lows[table.topic, partition][0] > start for partition, start in enumerate(kept.before)):
        raise SinkError(
            f"Kafka has let go of changes of {table.schema.table} since it was counted.", code="SINK_BEHIND"
        )
    seen = found.total - found.older - more
    return kept.rows.rows, seen, seen + _set_aside(job, writer, table) < kept.rows.rows


def _count(job: Job, table: SourceTableEntry) -> Counted:
    source = source_of(job.context, job.source)
    before = marks_of(job.kafka, job.source, table)
    rows = _counted(job, source, table.schema.table)
    until_confirmed(job, source, capture_of(job.context, job.source))
    return Counted(rows, tuple(before), tuple(marks_of(job.kafka, job.source, table)))


def _more_since(job: Job, table: SourceTableEntry, counted: Counted, after: Sequence[int]) -> int:
    """Return how many more rows than a count had seen came than went, by what the topic tells.

    Args:
        job: The run.
        table: The table.
        counted: The count.
        after: By partition: up to where it is read.
    """
    more = 0
    for partition, (start, end) in enumerate(zip(counted.before, after, strict=True)):
        for message in job.kafka.records(table.topic, partition, start, end):
            record = message.value() or b""
            if not any(word in record for word in _COMES_OR_GOES):
                continue
            value = json.loads(record)
            if not counted.rows.saw(int(value["source"]["txId"] or 0)):
                more += {"c": 1, "d": -1}.get(value["op"], 0)
    return more


def _counted(job: Job, source: Source, table: TableId) -> RowCount:
    """Return how many rows the database has; gives way to who waits for the table, and begins again."""
    pause = _FIRST_REST_S
    while True:
        try:
            return source.count_rows(capture_of(job.context, job.source), table)
        except SourceError as error:
            if error.code != "SOURCE_GAVE_WAY":
                raise
        job.say(f"{table} is counted again: somebody waited for it")
        deadline = time.monotonic() + pause
        while time.monotonic() < deadline:
            job.refuse_rest()
            time.sleep(_POLL_S)
        pause = min(2 * pause, _LONGEST_REST_S)


def _until_settled(job: Job, writer: str, table: SourceTableEntry, ends: Sequence[int]) -> None:
    """Wait a moment until the sink has settled each partition up to these ends at least.

    Raises:
        SinkError: It is late (``SINK_BEHIND``); meanwhile other tables and sinks have their turn.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        job.refuse_rest()
        progress = read_progress(job.context.progress, writer)
        told = progress.next_offsets if progress is not None else {}
        if all(told.get((table.topic, partition), 0) >= end for partition, end in enumerate(ends)):
            return
        time.sleep(_POLL_S)
    raise _behind(writer, table)


def _behind(writer: str, table: SourceTableEntry) -> SinkError:
    return SinkError(
        f"{writer} has not applied yet what {table.schema.table} had when it was counted.", code="SINK_BEHIND"
    )


def _set_aside(job: Job, writer: str, table: SourceTableEntry) -> int:
    """Return how many rows the sink has refused, which it therefore lacks."""
    progress = read_progress(job.context.progress, writer)
    told = progress.tables.get(str(table.schema.table)) if progress is not None else None
    return told.behind if told is not None else 0
