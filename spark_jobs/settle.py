"""The end of a batch, in the one order that loses nothing: rows that are behind, dead letters, progress."""

from __future__ import annotations

import uuid

from pyspark.sql import SparkSession

from headrace.config.pipeline import PipelineSpec
from headrace.observe.failpoints import hit
from sinks.base import Sink
from spark_jobs.deadletter import Missed, quarantine
from spark_jobs.held import save_holds
from spark_jobs.offsets import Settled
from spark_jobs.report import Report

__all__ = ["set_aside_again", "settle"]


def settle(
    spec: PipelineSpec,
    sink: Sink,
    batch_id: int,
    session: SparkSession,
    report: Report,
    settled: Settled,
    missed: Missed,
) -> None:
    """Make the batch's end durable; only after this returns may the checkpoint move.

    ``missed`` is told of rejected records that Kafka no longer has.
    """
    hit("settle.before_dead_letters", spec.kind)
    # First, for who finds a letter looks here whether its row still needs it.
    save_holds(spec.checkpoint, report.holds)
    quarantine(session, spec, f"{batch_id:012d}", report.rejects, missed)
    hit("settle.after_dead_letters", spec.kind)
    if settled:
        sink.settle(settled)
    hit("settle.after_progress", spec.kind)


def set_aside_again(spec: PipelineSpec, session: SparkSession, report: Report, missed: Missed) -> None:
    """Keep what was rejected of records that were applied again; letters of an earlier time stay."""
    save_holds(spec.checkpoint, report.holds)
    if report.rejects:
        quarantine(session, spec, f"again-{uuid.uuid4().hex}", report.rejects, missed)
