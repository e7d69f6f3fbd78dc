"""A store that has gone back in time is brought forward again: from its own progress, out of Kafka.

A store that was restored from a backup, or that lost its last writes with its machine, holds less than the
query's checkpoint says. The progress beside the data went back with the data, so it tells from where.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import SinkError
from sinks.base import Sink
from spark_jobs.decode import envelopes
from spark_jobs.explain import explain
from spark_jobs.offsets import Ranges
from spark_jobs.settle import Settled

__all__ = ["kafka_has_it", "lost", "parts", "read_again"]

_log = logging.getLogger("headrace")


def lost(sink: Sink, settled: Settled) -> Ranges:
    """Return what the store no longer holds of what was ``settled``; empty when it holds all.

    Raises:
        SinkUnavailable: When the store does not say.
    """
    wanted = {place: end for place, end in settled.items() if end >= 0}
    stored = sink.progress(wanted)
    return {
        place: (stored.get(place, -1) + 1, end + 1)
        for place, end in wanted.items()
        if stored.get(place, -1) < end
    }


@contextmanager
def kafka_has_it(name: str) -> Iterator[None]:
    """Say in words that Kafka has lost, too, what the sink ``name`` has lost (``SINK_WENT_BACK``)."""
    try:
        yield
    except PySparkException as error:
        if explain(error)["code"] != "KAFKA_DATA_LOST":
            raise
        raise SinkError(
            f"Sink {name} was restored to an earlier state, or lost its last writes, and Kafka no longer "
            "holds all that came after.",
            code="SINK_WENT_BACK",
            hint=f"headrace sink remove {name} --purge; then add it anew and run headrace resnapshot.",
        ) from error


def parts(gone: Ranges, most: int) -> Iterator[Ranges]:
    """Yield ranges of at most about ``most`` records that together are ``gone``, in order."""
    share = max(1, most // max(1, len(gone)))
    left = dict(gone)
    while left:
        yield {place: (begin, min(end, begin + share)) for place, (begin, end) in left.items()}
        left = {place: (begin + share, end) for place, (begin, end) in left.items() if begin + share < end}


def read_again(session: SparkSession, spec: PipelineSpec, part: Ranges) -> DataFrame:
    """Return the envelopes of some ranges."""
    records = sum(end - begin for begin, end in part.values())
    _log.warning("sink %s has gone back; %d records are applied again", spec.sink, records)
    assigned: dict[str, list[int]] = {}
    bounds: tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]] = {}, {}
    for (topic, partition), limits in part.items():
        assigned.setdefault(topic, []).append(partition)
        for bound, offset in zip(bounds, limits, strict=True):
            bound.setdefault(topic, {})[str(partition)] = offset
    found = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", spec.kafka_bootstrap)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(bounds[0]))
        .option("endingOffsets", json.dumps(bounds[1]))
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    return envelopes(found, spec.tables)
