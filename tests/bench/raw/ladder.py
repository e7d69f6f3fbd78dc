"""From Kafka to a collapsed batch, one step more each time: what every step adds to a record."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.cli.context import open_context
from headrace.config.pipeline import PipelineSpec, TableSpec
from headrace.control.registry import Registry, SourceEntry
from headrace.local.kafka import Kafka as KafkaServer
from headrace.model.change import Change
from spark_jobs.collapse import Collapser
from spark_jobs.decode import decoders, envelopes, records
from tests.bench.meter import race, servers
from tests.bench.raw.debezium import captured, reader
from tests.bench.raw.driver import apart, meter_of, session_in
from tests.bench.raw.table import ABOUT, TABLE, filled
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.stack import running_stack

__all__ = ["BENCHMARKS", "read_topics", "spec_of"]

_ROWS = 100_000
_MANY_ROWS = 1_000_000
_COUNT = "records long"
_LOOSE = "read by librdkafka, in Python"


def _measure(setting: Setting) -> Iterator[Result]:
    rows = _MANY_ROWS if setting.full else _ROWS
    with running_stack({"postgres", "kafka", "connect"}) as running:
        context = open_context(running.home.root)
        with (
            filled(running.endpoints.postgres_dsn, "raw", rows) as database,
            captured(context, database, "raw"),
        ):
            entry = Registry(context.registry).source("raw")
            spec = spec_of(entry, running.endpoints.kafka_bootstrap, running.home.root)
            kafka = servers(running.home.run)["kafka"]
            yield from apart(_climb, spec.model_dump_json(), rows, setting.runs, kafka)


def spec_of(entry: SourceEntry, bootstrap: str, folder: Path) -> PipelineSpec:
    """Return a pipeline that reads the table from Kafka and never runs."""
    return PipelineSpec(
        sink="bench",
        kind="memory",
        settings={},
        source=entry.name,
        kafka_bootstrap=bootstrap,
        placeholder=entry.placeholder,
        tables=tuple(
            TableSpec(topic=table.topic, epoch=table.epoch, table=table.table)
            for table in entry.tables
            if table.schema.table.name == TABLE
        ),
        checkpoint=folder / "checkpoint",
        dead_letters=folder / "letters",
        owner=folder / "owner.json",
        home="bench",
    )


def _climb(pipeline: str, rows: int, runs: int, kafka: int) -> list[Result]:
    """Measure every step in this process."""
    spec = PipelineSpec.model_validate_json(pipeline)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        session = session_in(Path(folder))
        raw = read_topics(session, spec)
        split = envelopes(raw, spec.tables)
        steps: dict[str, Callable[[], int]] = {
            _LOOSE: partial(_consume, spec, rows),
            "read by Spark": partial(_drop, raw, rows),
            "+ envelope taken apart in the JVM": partial(_drop, split, rows),
            "+ handed to Python as Arrow": partial(_drop, split.mapInArrow(_as_it_is, split.schema), rows),
            "+ decoded to changes": partial(_drop, split.mapInArrow(_decoded(pipeline), _COUNT), rows),
            "+ collapsed to the last change a key": partial(
                _drop, split.mapInArrow(_collapsed(pipeline), _COUNT), rows
            ),
        }
        sides = race(steps, runs, meter_of(session).beside({"kafka": kafka}), per=_microseconds)
        session.stop()
    what = "a table's records from Kafka through one step more of the engine each time"
    found = Result(
        "raw.ladder",
        what,
        "µs/record",
        sides,
        versions={
            "PySpark": version("pyspark"),
            "Kafka": KafkaServer().version,
            "confluent-kafka": version("confluent-kafka"),
        },
        settings={"records": rows, "row": ABOUT, "partitions": 1},
    )
    return [found, _steps(found)]


def _microseconds(rows: int, seconds: float) -> float:
    return round(seconds / rows * 1e6, 2)


def _steps(climbed: Result) -> Result:
    """Return what each of Spark's steps adds to the one before in processor time, of all runs together.

    By the clock it would say little: JVM and Python work side by side, and so does the rest of the machine.
    """
    added: dict[str, Side] = {}
    before = 0.0
    for name, side in climbed.sides.items():
        if name != _LOOSE:
            spent = sum(side.processor_s.values())  # seconds a million are microseconds each
            added[name], before = Side((round(spent - before, 2),)), spent
    return Result(
        "raw.ladder.steps",
        "processor time that each step of the ladder adds to the one before, broker included",
        "µs/record",
        added,
        settings={"runs": len(next(iter(climbed.sides.values())).samples)},
    )


def read_topics(session: SparkSession, spec: PipelineSpec) -> DataFrame:
    """Return the records of a pipeline, as a batch."""
    return (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", spec.kafka_bootstrap)
        .option("subscribe", ",".join(table.topic for table in spec.tables))
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.fetch.max.wait.ms", "5")
        .load()
    )


def _drop(frame: DataFrame, rows: int) -> int:
    frame.write.format("noop").mode("overwrite").save()
    return rows


def _consume(spec: PipelineSpec, rows: int) -> int:
    seen = 0
    with reader(spec.kafka_bootstrap, spec.tables[0].topic) as consumer:
        while seen < rows:
            for message in consumer.consume(10_000, 0.5):
                seen += message.value() is not None
    return seen


def _as_it_is(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _decoded(pipeline: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _count(sum(isinstance(found, Change) for found in records(batches, decoders(pipeline))))

    return run


def _collapsed(pipeline: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collapser, count = Collapser(), 0
        for found in records(batches, decoders(pipeline)):
            if isinstance(found, Change):
                collapser.add(found)
                if len(collapser) >= _AT_ONCE:
                    count += len(collapser.drain().latest)
        yield _count(count + len(collapser.drain().latest))

    return run


_AT_ONCE = 5_000
"""As many changes as the engine collapses before it hands them over."""


def _count(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"records": pa.array([number], pa.int64())})


BENCHMARKS = (
    Benchmark(
        "raw.ladder",
        "raw",
        2.1,
        headline=False,
        run=_measure,
        promises=("raw.ladder", "raw.ladder.steps"),
    ),
)
