"""Debezium alone: from Postgres into Kafka, where a reader counts what arrives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import httpx
import psycopg
from confluent_kafka import Consumer, TopicPartition

from headrace.cli.context import open_context
from headrace.config.kafka import KafkaAddress
from headrace.config.source import SourceSettings
from headrace.control import source as control_source
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.control.runner import engine_state, ensure_engine
from headrace.demo.probe import percentile
from headrace.local.connect import Connect as ConnectServer
from headrace.local.kafka import Kafka as KafkaServer
from headrace.local.postgres import Postgres
from tests.bench.meter import Meter, Tally, servers
from tests.bench.raw.table import ABOUT, TABLE, change_all, filled
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.database import Database
from tests.support.stack import RunningStack, running_stack
from tests.support.waiting import until

__all__ = ["BENCHMARKS", "Arrivals", "arrivals", "captured"]

_ROWS = 50_000
_MARKERS = 40
_PATIENCE_S = 120.0
_SETTLES_S = 2.0
_OURS = "poll.interval.ms 25"
_DEFAULT = "poll.interval.ms 500, the default"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What arrived in a topic.

    Args:
        records: How many.
        seconds: From the first fetch that had some to the last.
        after_first: How many of them came behind that first fetch.
    """

    records: int
    seconds: float
    after_first: int

    @property
    def rate(self) -> float:
        """Return records a second, without the time in which the connector started."""
        return self.after_first / self.seconds


@contextmanager
def reader(bootstrap: str, topic: str, offset: int = 0) -> Iterator[Consumer]:
    """Yield a consumer that stands at an offset of a topic's only partition and sees what is committed."""
    consumer = Consumer(
        {
            **KafkaAddress.parse(bootstrap).librdkafka(),
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
        }
    )
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, offset)])
        yield consumer


def arrivals(bootstrap: str, topic: str, records: int, offset: int = 0) -> tuple[Arrivals, int]:
    """Wait for so many records behind an offset; return how they came, and the offset behind the last.

    Raises:
        TimeoutError: They did not come.
    """
    deadline = time.monotonic() + _PATIENCE_S
    seen = first = 0
    began = ended = 0.0
    with reader(bootstrap, topic, offset) as consumer:
        while seen < records:
            found = [message for message in consumer.consume(2_000, 0.05) if not message.error()]
            if time.monotonic() > deadline:
                raise TimeoutError(f"{seen} of {records} records came in {_PATIENCE_S:.0f} s")
            if found:
                ended = time.perf_counter()
                began, first = (began, first) if began else (ended, len(found))
                seen += len(found)
                offset = (found[-1].offset() or 0) + 1
    return Arrivals(seen, ended - began or 1e-9, seen - first), offset


@contextmanager
def captured(
    context: Context, database: Database, name: str, *, threads: int = 1, wait: bool = True
) -> Iterator[str]:
    """Yield the topic of the table, captured by a source of its own; remove that at the end."""
    settings = SourceSettings(snapshot_threads=threads)
    control_source.add(context, name, database.dsn, settings=settings, wait=wait)
    try:
        yield next(table.topic for table in Registry(context.registry).source(name).tables)
    finally:
        control_source.remove(context, name)


def _measure(setting: Setting) -> Iterator[Result]:
    with running_stack({"postgres", "kafka", "connect"}) as running:
        context = open_context(running.home.root)
        # The first source starts it; it is to be at rest before anything is measured.
        ensure_engine(context)
        until(lambda: engine_state(context.progress)["state"] == "ready")
        meter = Meter(servers(running.home.run))
        with filled(running.endpoints.postgres_dsn, "raw", _ROWS) as database:
            yield _snapshot(context, database, setting, meter)
            with captured(context, database, "stream") as topic:
                _, offset = arrivals(context.kafka_bootstrap, topic, _ROWS)
                stream, offset = _stream(context, database, topic, offset, setting, meter)
                yield stream
                yield _latency(running, context, database, topic, offset, setting)


def _versions() -> dict[str, str]:
    return {
        "Postgres": Postgres().version,
        "Kafka": KafkaServer().version,
        "Debezium": ConnectServer().version,
    }


def _snapshot(context: Context, database: Database, setting: Setting, meter: Meter) -> Result:
    tally = Tally()
    for number in range(setting.runs + 1):
        for threads in (1, 2):
            side = "one thread" if threads == 1 else f"{threads} threads"
            with (
                meter.measured() as used,
                captured(context, database, f"s{number}_{threads}", threads=threads, wait=False) as topic,
            ):
                found, _ = arrivals(context.kafka_bootstrap, topic, _ROWS)
            if number:
                tally.sample(side, round(found.rate, 1))
                tally.use(side, _ROWS, used)
    return Result(
        "raw.debezium.snapshot",
        "the initial snapshot of one table into Kafka, from the first record to the last",
        "rows/s",
        tally.sides(),
        versions=_versions(),
        settings={"rows": _ROWS, "row": ABOUT, "processor": "making and removing the source included"},
    )


def _stream(
    context: Context, database: Database, topic: str, offset: int, setting: Setting, meter: Meter
) -> tuple[Result, int]:
    tally = Tally()
    with Connect(context.connect_url) as connect:
        for number in range(setting.runs + 1):
            connect.pause(_connector(context))
            changes = change_all(database, _ROWS)
            with meter.measured() as used:
                connect.resume(_connector(context))
                found, offset = arrivals(context.kafka_bootstrap, topic, changes, offset)
            if number:
                tally.sample("Debezium", round(found.rate, 1))
                tally.use("Debezium", changes, used)
    result = Result(
        "raw.debezium.stream",
        "a backlog of updates from the log into Kafka, from the first record to the last",
        "changes/s",
        tally.sides(),
        versions=_versions(),
        settings={"changes": _ROWS, "transaction": "1,000 rows", "exactly once": True},
    )
    return result, offset


def _connector(context: Context) -> str:
    with httpx.Client(base_url=context.connect_url, trust_env=False) as client:
        names: list[str] = client.get("/connectors").raise_for_status().json()
    return names[0]


def _latency(
    running: RunningStack, context: Context, database: Database, topic: str, offset: int, setting: Setting
) -> Result:
    """Measure from commit to Kafka, with our pause between two looks and with Debezium's own."""
    found: dict[str, list[list[float]]] = {name: [] for name in (_OURS, _DEFAULT)}
    for number in range(setting.runs + 1):
        for side, pause in ((_OURS, "25"), (_DEFAULT, "500")):
            _configure(context, pause)
            times, offset = _markers(context.kafka_bootstrap, database, topic, offset)
            if number:
                found[side].append(times)
    sides: dict[str, Side] = {}
    for side, runs in found.items():
        sides[f"{side}: p50"] = Side(tuple(round(percentile(times, 0.5) or 0.0, 1) for times in runs))
        # Of one run it would be its worst marker, so all runs are ranked together.
        every = [each for times in runs for each in times]
        sides[f"{side}: p99"] = Side((round(percentile(every, 0.99) or 0.0, 1),))
    return Result(
        "raw.debezium.latency",
        "from just before the commit of one row until a reader of the topic has it",
        "ms",
        sides,
        versions=_versions(),
        settings={"markers a run": _MARKERS, "pause between two": "50 ms"},
    )


def _configure(context: Context, pause_ms: str) -> None:
    """Let the connector look at its queue so often; return when it runs again."""
    with httpx.Client(
        base_url=f"{context.connect_url}/connectors/{_connector(context)}", trust_env=False
    ) as client:
        config = client.get("/config").raise_for_status().json()
        client.put("/config", json={**config, "poll.interval.ms": pause_ms}).raise_for_status()
        deadline = time.monotonic() + _PATIENCE_S
        time.sleep(_SETTLES_S)  # the task goes on for a moment as it was
        while '"FAILED"' in (told := client.get("/status").text) or told.count('"RUNNING"') < 2:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the connector does not run again: {told[:300]}")
            time.sleep(0.2)
        time.sleep(_SETTLES_S)


def _markers(bootstrap: str, database: Database, topic: str, offset: int) -> tuple[list[float], int]:
    times: list[float] = []
    with (
        reader(bootstrap, topic, offset) as consumer,
        psycopg.connect(database.dsn, autocommit=True) as writer,
    ):
        consumer.consume(1, 0.2)  # the connection stands before it is timed
        for number in range(_MARKERS + 1):
            began = time.perf_counter()
            writer.execute(f"UPDATE {TABLE} SET customer = customer + 1 WHERE id = {number + 1}".encode())
            while not (got := [m for m in consumer.consume(1, 5.0) if not m.error()]):
                if time.perf_counter() - began > _PATIENCE_S:
                    raise TimeoutError("a marker did not come")
            if number:  # the first meets a connector that has just begun again
                times.append((time.perf_counter() - began) * 1000)
            offset = (got[-1].offset() or 0) + 1
            time.sleep(0.05)
    return times, offset


BENCHMARKS = (
    Benchmark(
        "raw.debezium",
        "raw",
        6.0,
        headline=False,
        run=_measure,
        promises=("raw.debezium.snapshot", "raw.debezium.stream", "raw.debezium.latency"),
    ),
)
