"""One micro-batch: decode → collapse → apply → settle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import DataFrame

from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import HeadraceError, SinkUnavailable
from headrace.observe.failpoints import hit
from spark_jobs.apply import REPORT, Report, carry_of, holds_of, partition_applier, sink_of, store_may_recover
from spark_jobs.driver_apply import SMALL, apply_in_driver
from spark_jobs.offsets import planned
from spark_jobs.ownership import Holding
from spark_jobs.progress import Progress
from spark_jobs.settle import settle

__all__ = ["batch_runner"]

_Got = TypeVar("_Got")

_MANY = 50
_BUSY_S = 0.25
_LONGEST_REST_S = 0.5


def batch_runner(
    spec: PipelineSpec, progress: Progress, turn: threading.Lock, holding: Holding
) -> Callable[[DataFrame, int], None]:
    """Return the function Spark calls for every micro-batch of the sink's query.

    It takes what :func:`spark_jobs.decode.envelopes` yields and returns only when every record of the
    batch is applied, stale or in the dead letter queue. A store that asks for patience is asked again, with
    backoff, for as long as it takes; the state says so. A store that refuses for another reason ends the
    query with its error. ``turn`` is held meanwhile: nobody else of this process writes to the sink;
    ``holding`` sees to it that no other process does.
    """
    placement = sink_of(spec.model_dump_json())[0].placement

    def apply(decoded: DataFrame, pipeline: str, batch_id: int, records: int) -> list[Report]:
        if placement == "driver" or records <= SMALL:
            return apply_in_driver(decoded, pipeline, batch_id, records)
        rows = decoded.mapInArrow(partition_applier(pipeline, batch_id), REPORT).collect()
        return [Report.load(bytes(row.report)) for row in rows]

    def run(decoded: DataFrame, batch_id: int) -> None:
        try:
            run_whole(decoded, batch_id)
        except HeadraceError as error:
            holding.give_up()
            # Said here, for on its way through Spark it becomes the text of a stack trace.
            progress.state("failed", error)
            raise

    def run_whole(decoded: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        span = planned(spec.checkpoint, batch_id)
        hit("batch.planned", spec.kind)
        with turn:
            pipeline = _patiently(holding.pipeline, progress)
            report = _patiently(lambda: _whole(apply(decoded, pipeline, batch_id, span.records)), progress)
            report.holds.add(holds_of(pipeline))
            settle(spec, sink_of(pipeline)[0], batch_id, decoded.sparkSession, report, span.ends)
            carry_of(pipeline, batch_id).discard(report.spent)
            progress.batch(batch_id, time.monotonic() - started, report, span.ends)
        progress.state("running")
        took = time.monotonic() - started
        if _MANY < span.records <= SMALL and took > _BUSY_S:
            # Much comes in and the processor is wanted by all. What a batch costs hardly depends on its
            # size, so a rest as long as the work halves the work.
            time.sleep(min(_LONGEST_REST_S, took))

    return run


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
