"""Whether a run has seen every row of a table: counted before a sink removes those that it has not seen.

A row that our reading passed over looks like one that is gone. So the rows that a sink would keep are held
against those that the database has. Writers go on meanwhile: the sink is asked when it has all that was
committed before the count, and as many rows may be missing as the topic tells to have been deleted since.
Those that it tells to have been made after the count stand for no others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from connectors.base import Source
from headrace.control.capture import capture_of, source_of
from headrace.control.progress import read_progress
from headrace.control.registry import SourceTableEntry
from headrace.control.runs.asking import until_confirmed
from headrace.control.runs.job import Job
from headrace.control.runs.start import marks_of
from headrace.control.sweeps import ask_sweep
from headrace.model.errors import SinkError, SourceError
from headrace.model.schema import TableId

__all__ = ["NOTHING_GOES", "refuse_unseen"]

_DELETE, _CREATE = b'"op":"d"', b'"op":"c"'
"""As the connector writes them; within a value quotes are escaped."""
NOTHING_GOES = (0, 0.0)
"""A limit with which no row is removed."""
_COUNTS = 3
"""A TRUNCATE after a count removes rows by one record; it is over before the next."""
_PATIENCE_S = 10.0
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
    source = source_of(job.context, job.source)
    before = marks_of(job.kafka, job.source, table)
    rows = _counted(job, source, table.schema.table)
    until_confirmed(job, source, capture_of(job.context, job.source))
    confirmed = marks_of(job.kafka, job.source, table)
    settled = _settled(job, writer, table, confirmed)
    found = ask_sweep(job.context, writer, table, marks, NOTHING_GOES, job.refuse_rest)
    deleted = _told(job, table, _DELETE, before, marks_of(job.kafka, job.source, table))
    made = _told(job, table, _CREATE, confirmed, settled)
    seen = found["total"] - found["older"] - made + deleted
    return rows, seen, seen + _set_aside(job, writer, table) < rows


def _told(
    job: Job, table: SourceTableEntry, operation: bytes, first: Sequence[int], after: Sequence[int]
) -> int:
    """Return how many records of one operation a topic has between two ends of its partitions."""
    return sum(
        operation in (message.value() or b"")
        for partition, (start, end) in enumerate(zip(first, after, strict=True))
        for message in job.kafka.records(table.topic, partition, start, end)
    )


def _counted(job: Job, source: Source, table: TableId) -> int:
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
            job.heed()
            time.sleep(_POLL_S)
        pause = min(2 * pause, _LONGEST_REST_S)


def _settled(job: Job, writer: str, table: SourceTableEntry, ends: Sequence[int]) -> list[int]:
    """Return up to where the sink has settled each partition, once that is these ends at least."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and not job.heed():
        progress = read_progress(job.context.progress, writer)
        told = progress.next_offsets if progress is not None else {}
        settled = [told.get((table.topic, partition), 0) for partition in range(len(ends))]
        if all(place >= end for place, end in zip(settled, ends, strict=True)):
            return settled
        time.sleep(_POLL_S)
    raise SinkError(
        f"{writer} has not applied yet what {table.schema.table} had when it was counted.", code="SINK_BEHIND"
    )


def _set_aside(job: Job, writer: str, table: SourceTableEntry) -> int:
    """Return how many rows the sink has refused, which it therefore lacks."""
    progress = read_progress(job.context.progress, writer)
    told = progress.tables.get(str(table.schema.table)) if progress is not None else None
    return told.behind if told is not None else 0
