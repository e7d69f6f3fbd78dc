"""Ranges of Kafka → the sink, a bounded number of bytes at a time, on the way that is shortest for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import TypeVar

from pyspark.sql import SparkSession

from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import HeadraceError, SinkError, SinkUnavailable
from sinks.base import Place
from spark_jobs.apply import holds_of, sink_of
from spark_jobs.by_spark import parts_by_size, raw_of, records_of
from spark_jobs.driver_apply import apply_raw
from spark_jobs.offsets import Ranges, Settled
from spark_jobs.progress import Progress
from spark_jobs.reader import Reader, Unreadable
from spark_jobs.report import Report, store_may_recover
from spark_jobs.task_apply import apply_in_tasks

__all__ = ["SMALL", "Applier", "Ended", "patiently"]

_Got = TypeVar("_Got")

_log = logging.getLogger("headrace")

SMALL = 2_000
"""Up to so many records the way to an executor's Python is not worth it."""

_SLICE_BYTES = 64 << 20
"""So much is held at a time, and some times as much while it is decoded."""


class Ended(Exception):
    """The query was told to end while its store asked for patience; what is not settled runs again."""


class Applier:
    """Applies ranges of offsets to one sink.

    Args:
        spec: The sink's pipeline.
        progress: Told when many records are begun, and when the store asks for patience.
        reader: Reads what is applied in the driver.
        over: Set when the query is to end.
    """

    def __init__(self, spec: PipelineSpec, progress: Progress, reader: Reader, over: threading.Event) -> None:
        self._spec = spec
        self._progress = progress
        self._reader = reader
        self._over = over

    def apply(self, session: SparkSession, pipeline: str, ranges: Ranges) -> Report:
        """Apply ranges in order, again as long as the store asks for patience.

        Raises:
            HeadraceError: When the store refuses for another reason.
            Ended: When the query is to end meanwhile.
        """
        if sum(end - begin for begin, end in ranges.values()) > SMALL:
            self._progress.applying()  # the store is not asked for a while; a few are no reason for that
        return patiently(lambda: _whole(self._attempt(session, pipeline, ranges)), self._progress, self._over)

    def begun(self, pipeline: str, ranges: Ranges, begins: Settled) -> Collection[Place]:
        """Return the places of which something was applied before.

        A checkpoint that was lost does not say so, nor which rows were behind; the store's progress does.

        Args:
            pipeline: The sink's.
            ranges: Of what is to be applied.
            begins: What the checkpoint says was settled before.

        Raises:
            HeadraceError: When the store refuses.
            Ended: When the query is to end while the store asks for patience.
        """
        unknown = [place for place in ranges if place not in begins]
        if not unknown:
            return begins.keys()
        sink = sink_of(pipeline)[0]
        return {*begins, *patiently(lambda: sink.progress(unknown), self._progress, self._over)}

    def _attempt(self, session: SparkSession, pipeline: str, ranges: Ranges) -> Report:
        records = sum(end - begin for begin, end in ranges.values())
        try:
            if sink_of(pipeline)[0].placement == "driver" or records <= SMALL:
                return self._in_driver(pipeline, ranges)
            report = Report.merged(apply_in_tasks(session, pipeline, ranges))
            report.holds.add(holds_of(pipeline))
            return report
        except Unreadable:
            return self._by_spark(session, pipeline, ranges)

    def _in_driver(self, pipeline: str, ranges: Ranges) -> Report:
        """Apply ranges in slices, each of which begins where the one before it ended."""
        total = Report(holds=holds_of(pipeline))
        begins = {place: begin for place, (begin, _) in ranges.items()}
        for found in self._reader.slices(ranges, _SLICE_BYTES):
            wanted = [raw for raw in found if not _in_trouble(pipeline, total, raw.topic)]
            for report in apply_raw(wanted, pipeline, dict(begins), total.holds):
                total.add(report)
            if total.error is not None:
                break
            begins |= {(raw.topic, raw.partition): raw.offset + 1 for raw in found}
        return total

    def _by_spark(self, session: SparkSession, pipeline: str, ranges: Ranges) -> Report:
        """Apply ranges that the reader could not read; Spark tells why, if it cannot either."""
        total = Report(holds=holds_of(pipeline))
        bootstrap = self._spec.kafka_bootstrap
        _log.warning("sink %s reads by way of Spark", self._spec.sink)
        for part in parts_by_size(session, bootstrap, ranges, _SLICE_BYTES):
            wanted = {
                place: span for place, span in part.items() if not _in_trouble(pipeline, total, place[0])
            }
            if wanted:
                begins = {place: begin for place, (begin, _) in wanted.items()}
                found = raw_of(records_of(session, bootstrap, wanted))
                for report in apply_raw(found, pipeline, begins, total.holds):
                    total.add(report)
            if total.error is not None:
                break
        return total


def _in_trouble(pipeline: str, report: Report, topic: str) -> bool:
    return bool(report.troubles) and str(sink_of(pipeline)[1].topics[topic][0]) in report.troubles


def _whole(report: Report) -> Report:
    """Return the report.

    Raises:
        HeadraceError: When it says that the store took not all; a SinkUnavailable where waiting may help.
    """
    if report.error is None:
        return report
    kind = SinkUnavailable if store_may_recover(report.error) else HeadraceError
    raise kind(report.error["message"], code=report.error["code"], hint=report.error["hint"])


def patiently(
    attempt: Callable[[], _Got],
    progress: Progress,
    over: threading.Event,
    kind: type[SinkError] = SinkUnavailable,
) -> _Got:
    """Return what ``attempt`` returns, doing it again for as long as the store is not available.

    Args:
        attempt: Done again as a whole.
        progress: Told that the store asks for patience.
        over: Ends it.
        kind: For which error it is done again. For that of a store that went back it has to look first.

    Raises:
        Ended: When ``over`` is set before the store answers.
    """
    pause = 0.25
    while True:
        try:
            return attempt()
        except kind as error:
            progress.state("degraded", error)
        if over.wait(pause):
            raise Ended
        pause = min(pause * 2, 5.0)
