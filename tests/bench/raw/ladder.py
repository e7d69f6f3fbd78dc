"""From Kafka to a collapsed batch, by two ways, one step more each time: what every step adds to a record."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from connectors.debezium import Decoder
from headrace.cli.context import open_context
from headrace.config.kafka import KafkaAddress
from headrace.config.pipeline import PipelineSpec, TableSpec
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry
from headrace.local.kafka import Kafka as KafkaServer
from headrace.model.change import Change, Record
from spark_jobs.collapse import Collapser
from spark_jobs.decode import decoders
from spark_jobs.offsets import Ranges
from spark_jobs.reader import Raw, Reader
from tests.bench.meter import race, servers
from tests.bench.raw.debezium import captured, reader
from tests.bench.raw.driver import apart, meter_of, session_in
from tests.bench.raw.table import ABOUT, TABLE, filled
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.stack import running_stack

__all__ = ["BENCHMARKS", "spec_of"]

_ROWS = 100_000
_COUNT = "records long"
_LOOSE = "read by librdkafka, in Python"
_BY_TASK = ("read by a task", "+ decoded to changes", "+ collapsed to the last change a key")
_BY_SPARK = ("read by Spark", "+ handed to Python as Arrow", "+ decoded to changes, from Arrow")


def _measure(setting: Setting) -> Iterator[Result]:
    with running_stack({"postgres", "kafka", "connect"}) as running:
        context = open_context(running.home.root)
        with (
            filled(running.endpoints.postgres_dsn, "raw", _ROWS) as database,
            captured(context, database, "raw"),
        ):
            entry = Registry(context.registry).source("raw")
            spec = spec_of(entry, running.endpoints.kafka_bootstrap, running.home.root)
            kafka = servers(running.home.run)["kafka"]
            yield from apart(_climb, spec.model_dump_json(), _ROWS, setting.runs, kafka)


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
        raw = _read_topics(session, spec)
        ends = Kafka(spec.kafka_bootstrap).ends([table.topic for table in spec.tables])
        by_task = (partial(_in_task, session, pipeline, ends, step) for step in (_count, _changes, _latest))
        by_spark = (
            partial(_drop, raw, rows),
            partial(_drop, raw.mapInArrow(_as_it_is, raw.schema), rows),
            partial(_drop, raw.mapInArrow(_decoded(pipeline), _COUNT), rows),
        )
        steps: dict[str, Callable[[], int]] = {
            _LOOSE: partial(_consume, spec, rows),
            **dict(zip(_BY_TASK, by_task, strict=True)),
            **dict(zip(_BY_SPARK, by_spark, strict=True)),
        }
        sides = race(steps, runs, meter_of(session).beside({"kafka": kafka}), per=_microseconds)
        session.stop()
    what = "a table's records from Kafka, one step more each time: by the engine's tasks, and by Spark's plan"
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
    """Return what each step adds to the one before in processor time, of all runs together.

    By the clock it would say little: JVM and Python work side by side, and so does the rest of the machine.
    """
    added: dict[str, Side] = {}
    for way in (_BY_TASK, _BY_SPARK):
        before = 0.0
        for name in way:
            spent = sum(climbed.sides[name].processor_s.values())  # seconds a million are microseconds each
            added[name], before = Side((round(spent - before, 2),)), spent
    return Result(
        "raw.ladder.steps",
        "processor time that each step of the ladder adds to the one before, broker included",
        "µs/record",
        added,
        settings={"runs": len(next(iter(climbed.sides.values())).samples)},
    )


def _read_topics(session: SparkSession, spec: PipelineSpec) -> DataFrame:
    """Return the records of a pipeline, as a batch."""
    return (
        session.read.format("kafka")
        .options(**KafkaAddress.parse(spec.kafka_bootstrap).spark())
        .option("subscribe", ",".join(table.topic for table in spec.tables))
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.fetch.max.wait.ms", "5")
        .load()
        .select("topic", "partition", "offset", "key", "value")
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
        number = 0
        for batch in batches:
            found = map(Raw, *(column.to_pylist() for column in batch.columns))
            number += _changes(found, decoders(pipeline))
        yield pa.RecordBatch.from_pydict({"records": pa.array([number], pa.int64())})

    return run


_Step = Callable[[Iterable[Raw], Mapping[str, Decoder]], int]


def _in_task(session: SparkSession, pipeline: str, ranges: Ranges, step: _Step) -> int:
    tasks = session.sparkContext.parallelize([ranges], 1).mapPartitions(
        partial(_read_in_task, pipeline, step)
    )
    return sum(tasks.collect())


def _read_in_task(pipeline: str, step: _Step, shares: Iterator[Ranges]) -> Iterator[int]:
    bootstrap = PipelineSpec.model_validate_json(pipeline).kafka_bootstrap
    for ranges in shares:
        task = Reader(bootstrap, "ladder")
        yield step(task.stream(ranges), decoders(pipeline))
        task.close()


def _count(found: Iterable[Raw], _: Mapping[str, Decoder]) -> int:
    return sum(1 for _ in found)


def _changes(found: Iterable[Raw], by_topic: Mapping[str, Decoder]) -> int:
    return sum(isinstance(_change(raw, by_topic), Change) for raw in found)


def _latest(found: Iterable[Raw], by_topic: Mapping[str, Decoder]) -> int:
    collapser, count = Collapser(), 0
    for raw in found:
        change = _change(raw, by_topic)
        if isinstance(change, Change):
            collapser.add(change)
            if len(collapser) >= _AT_ONCE:
                count += sum(len(part.latest) for part in collapser.drain())
    return count + sum(len(part.latest) for part in collapser.drain())


def _change(raw: Raw, by_topic: Mapping[str, Decoder]) -> Record:
    return by_topic[raw.topic].decode_raw(raw, raw.key, raw.value)


_AT_ONCE = 5_000
"""As many changes as the engine collapses before it hands them over."""


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
