"""One micro-batch: decode → collapse → apply → settle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import HeadraceError, SinkUnavailable
from headrace.observe.failpoints import hit
from spark_jobs.apply import carry_of, holds_of, partition_applier, sink_of
from spark_jobs.decode import envelopes
from spark_jobs.driver_apply import apply_in_driver, apply_raw
from spark_jobs.emptying import Emptyings
from spark_jobs.offsets import Ranges, Span, planned, refuse_more_partitions, settled_last
from spark_jobs.ownership import Holding
from spark_jobs.progress import Progress
from spark_jobs.reader import Reader, Unreadable
from spark_jobs.report import REPORT, Report, store_may_recover
from spark_jobs.rewind import kafka_has_it, lost, parts, read_again
from spark_jobs.settle import set_aside_again, settle
from spark_jobs.task_apply import apply_in_tasks

__all__ = ["Batches", "rest_after"]

_Got = TypeVar("_Got")

_SMALL = 2_000
"""Up to so many records the way to an executor's Python is not worth it."""

_MOST_BYTES = 64 << 20
"""More is for who can work on the first before the last is there."""

_MANY = 50
_BUSY_S = 0.25
_LONGEST_REST_S = 0.5
_PACED = 4
"""So many times as long as its batch took may a sink with a pace rest."""
_LOOK_EVERY_S = 5.0
_TIDY_S = 0.2
"""So long may a change that comes in have to wait for it."""


class Batches:
    """What Spark calls for every micro-batch of one sink's query.

    ``turn`` is held meanwhile: nobody else of this process writes to the sink; ``holding`` sees to it that
    no other process does.

    Attributes:
        unavailable: Whether the store did not answer when it was last looked at, with nothing to apply.
    """

    def __init__(
        self, spec: PipelineSpec, progress: Progress, turn: threading.Lock, holding: Holding
    ) -> None:
        self._spec = spec
        self._progress = progress
        self._turn = turn
        self._holding = holding
        self._emptyings = Emptyings(spec)
        self._reader = Reader(spec.kafka_bootstrap, f"headrace-{spec.sink}")
        self._over = threading.Event()
        self._at_rest = time.monotonic()
        self.unavailable = False

    def run(self, kafka: DataFrame, batch_id: int) -> None:
        """Apply a batch of records as Spark's Kafka source describes them.

        It returns only when every record is applied, stale or in the dead letter queue. A store that asks
        for patience is asked again, with backoff, for as long as it takes; the state says so. A store that
        refuses for another reason ends the query with its error.
        """
        with self._said():
            self._run(kafka, batch_id)

    @property
    def look_is_due(self) -> bool:
        """Return whether nothing has come in for so long that the store should be looked at."""
        return time.monotonic() - self._at_rest > _LOOK_EVERY_S

    def look(self, session: SparkSession) -> None:
        """Bring the store forward if it has gone back while nothing came in, and let it tidy up.

        Raises:
            HeadraceError: When that cannot be done; the state says so.
        """
        if not self._turn.acquire(blocking=False):
            return
        try:
            last, settled = settled_last(self._spec.checkpoint)
            if settled:
                with self._said():
                    pipeline = self._holding.pipeline()
                    sink = sink_of(pipeline)[0]
                    self._bring_forward(session, pipeline, last, lost(sink, settled))
                    sink.maintain(_TIDY_S)
            if self.unavailable:
                self.unavailable = False
                self._progress.state("running")
        except SinkUnavailable as error:
            self.unavailable = True
            self._progress.state("degraded", error)
        finally:
            self._at_rest = time.monotonic()
            self._turn.release()

    def close(self) -> None:
        """Say that there will be no more batches; what is under way ends by itself."""
        self._over.set()
        if self._turn.acquire(blocking=False):
            try:
                self._reader.close()
            finally:
                self._turn.release()

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except SinkUnavailable:
            raise
        except HeadraceError as error:
            self._holding.give_up()
            # Said here, for on its way through Spark it becomes the text of a stack trace.
            self._progress.state("failed", error)
            raise

    def _run(self, kafka: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        spec, progress, session = self._spec, self._progress, kafka.sparkSession
        span = planned(spec.checkpoint, batch_id)
        refuse_more_partitions(spec.tables, span.partitions)
        hit("batch.planned", spec.kind)
        with self._turn, self._reading():
            pipeline = _patiently(self._holding.pipeline, progress)
            sink = sink_of(pipeline)[0]
            gone = _patiently(lambda: lost(sink, span.begins), progress)
            self._bring_forward(session, pipeline, batch_id - 1, gone)
            report = self._straight(session, pipeline, batch_id, span)
            if report is None:
                report = self._by_spark(envelopes(kafka, spec.tables), pipeline, batch_id)
            _patiently(lambda: self._emptyings.empty(sink, report, span.begins, span.ends), progress)
            settle(spec, sink, batch_id, session, report, span.ends)
            carry_of(pipeline, batch_id).discard(report.spent)
            progress.batch(batch_id, time.monotonic() - started, report, span.ends)
            self._at_rest = time.monotonic()
            self.unavailable = False
        progress.state("running")
        self._over.wait(rest_after(span.records, time.monotonic() - started, sink.pace_s))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self._over.is_set():
                self._reader.close()

    def _straight(self, session: SparkSession, pipeline: str, batch_id: int, span: Span) -> Report | None:
        """Apply records as they are read from Kafka; None when they are not to be had that way."""
        in_driver = sink_of(pipeline)[0].placement == "driver"
        if in_driver or span.records <= _SMALL:
            found = self._reader.read(span.ranges, _MOST_BYTES)
            if found is not None:
                return self._applied(pipeline, lambda: apply_raw(found, pipeline, batch_id))
        if in_driver:
            return None
        try:
            return self._applied(pipeline, lambda: apply_in_tasks(session, pipeline, batch_id, span.ranges))
        except Unreadable:
            return None

    def _by_spark(self, decoded: DataFrame, pipeline: str, batch_id: int) -> Report:
        placement = sink_of(pipeline)[0].placement

        def apply() -> list[Report]:
            if placement == "driver":
                return apply_in_driver(decoded, pipeline, batch_id)
            # No more tasks than run at once, over several partitions each: one costs more than a small table.
            tasks = decoded.coalesce(decoded.sparkSession.sparkContext.defaultParallelism)
            rows = tasks.mapInArrow(partition_applier(pipeline, batch_id), REPORT).collect()
            return [Report.load(bytes(row.report)) for row in rows]

        return self._applied(pipeline, apply)

    def _applied(self, pipeline: str, apply: Callable[[], list[Report]]) -> Report:
        report = _patiently(lambda: _whole(apply()), self._progress)
        report.holds.add(holds_of(pipeline))
        return report

    def _bring_forward(self, session: SparkSession, pipeline: str, batch_id: int, gone: Ranges) -> None:
        """Apply again what the store has lost of everything up to the end of batch ``batch_id``."""
        sink = sink_of(pipeline)[0]
        for part in parts(gone, self._spec.max_offsets_per_trigger):
            again = read_again(session, self._spec, part)
            with kafka_has_it(self._spec.sink):
                report = self._by_spark(again, pipeline, batch_id)
            begins = {place: begin - 1 for place, (begin, _) in part.items()}
            ends = {place: end - 1 for place, (_, end) in part.items()}
            self._emptyings.empty(sink, report, begins, ends)
            set_aside_again(self._spec, session, report)
            sink.settle(ends)
            self._progress.request(report)


def rest_after(records: int, took: float, pace: float) -> float:
    """Return how many seconds to wait after a batch, so that the next is larger; 0 where that gains nothing.

    What a small batch costs hardly depends on its size, so a rest as long as the work halves the work.
    Where much comes in, and a batch takes long because the processor is wanted by all, that is done for
    every sink. One with a pace rests longer, as long as a batch's share of the time is large. Where little
    comes in nobody rests: that would make those few wait, and save nothing that anybody wants.
    """
    if not _MANY < records <= _SMALL:
        return 0.0
    rest = min(pace - took, _PACED * took)
    if took > _BUSY_S:
        rest = max(rest, min(_LONGEST_REST_S, took))
    return max(rest, 0.0)


def _whole(reports: list[Report]) -> Report:
    """Return the sum of the tasks' reports.

    Raises:
        HeadraceError: When one of them could not finish; a SinkUnavailable where waiting may help.
    """
    report = Report.merged(reports)
    if report.error is None:
        return report
    kind = SinkUnavailable if store_may_recover(report.error) else HeadraceError
    raise kind(report.error["message"], code=report.error["code"], hint=report.error["hint"])


def _patiently(attempt: Callable[[], _Got], progress: Progress) -> _Got:
    """Return what ``attempt`` returns, asking again for as long as the store is not available."""
    pause = 0.25
    while True:
        try:
            return attempt()
        except SinkUnavailable as error:
            progress.state("degraded", error)
        time.sleep(pause)
        pause = min(pause * 2, 5.0)
