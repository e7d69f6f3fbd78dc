"""The Spark driver's ahead-of-time cache: where it is, and the work the driver learns from."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.config.kafka import KafkaAddress
from headrace.config.pipeline import DRIVER_JVM, EngineSpec, PipelineSpec, TableSpec
from headrace.local.aot import AotCache
from headrace.local.java import spark_java_home
from headrace.model.schema import Column, LogicalType, TableId, TableSchema

__all__ = ["driver_cache", "train_driver"]

_TOPIC = "training.public.items"
_ROUNDS = 60
_PER_ROUND = 20
_LIMIT_S = 600.0


def driver_cache(jars: Sequence[Path]) -> AotCache | None:
    """Return the place of the driver's cache; None if this Java cannot make one."""
    spark = find_spec("pyspark")
    own = Path(spark.origin).parent / "jars" if spark and spark.origin else Path(sys.prefix)
    return AotCache.of("driver", [*jars, own], DRIVER_JVM)


def train_driver(jars: Sequence[Path], bootstrap: str, work: Path) -> bool:
    """Let a driver apply a stream of small batches and keep what it learnt; say whether it did.

    Args:
        jars: The driver's class path.
        bootstrap: A broker for this alone.
        work: A directory for this alone.
    """
    cache = driver_cache(jars)
    if cache is None or cache.usable():
        return False
    (engine := work / "engine.json").write_text(_engine(jars, work, cache).model_dump_json())
    (pipeline := work / "pipeline.json").write_text(_pipeline(bootstrap, work).model_dump_json())
    admin = AdminClient({**KafkaAddress.parse(bootstrap).librdkafka()})
    for future in admin.create_topics([NewTopic(_TOPIC, 1, 1)]).values():
        future.result()
    command = [sys.executable, "-m", "spark_jobs.training", str(engine), str(pipeline)]
    with subprocess.Popen([*command, str(_ROUNDS * _PER_ROUND)], stdin=subprocess.DEVNULL) as driver:
        _feed(bootstrap, driver)
        try:
            driver.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            driver.kill()
    return driver.returncode == 0 and cache.admit()


def _engine(jars: Sequence[Path], work: Path, cache: AotCache) -> EngineSpec:
    return EngineSpec(
        pipelines=work / "pipelines",
        progress=work / "progress",
        requests=work / "requests",
        run=work / "run",
        logs=work / "logs",
        work=work / "spark",
        java_home=spark_java_home(),
        jars=tuple(jars),
        java_options=tuple(cache.options(training=True)),
    )


def _pipeline(bootstrap: str, work: Path) -> PipelineSpec:
    columns = (Column("id", LogicalType.INT64), Column("name", LogicalType.TEXT))
    schema = TableSchema(TableId("public", "items"), columns, ("id",))
    return PipelineSpec(
        sink="training",
        kind="memory",
        settings={"store": "training"},
        source="training",
        kafka_bootstrap=bootstrap,
        placeholder="",
        tables=(TableSpec(topic=_TOPIC, epoch=1, table=schema.as_dict()),),
        checkpoint=work / "checkpoint",
        dead_letters=work / "dead-letters",
        owner=work / "owner.json",
        home="training",
    )


def _feed(bootstrap: str, driver: subprocess.Popen[bytes]) -> None:
    """Produce changes a few at a time, so that there are many batches, until all are sent or it has ended."""
    producer = Producer({**KafkaAddress.parse(bootstrap).librdkafka()})
    for number in range(_ROUNDS * _PER_ROUND):
        row = {"id": number % 100, "name": f"item {number}"}
        source = {"lsn": number, "txId": number, "ts_ms": int(time.time() * 1000), "snapshot": "false"}
        record = {"before": None, "after": row, "source": source, "op": "c", "ts_ms": source["ts_ms"]}
        producer.produce(_TOPIC, json.dumps(record).encode(), json.dumps({"id": row["id"]}).encode())
        if number % _PER_ROUND == 0:
            producer.flush(10)
            if driver.poll() is not None:
                return
            time.sleep(0.5)
    producer.flush(10)
