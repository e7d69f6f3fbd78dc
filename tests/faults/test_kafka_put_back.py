"""Kafka is not what it was when it was applied: what lag and commands tell about it is carried out."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from redis import Redis
from typer.testing import CliRunner

from headrace.cli.context import open_context
from headrace.cli.main import app
from headrace.config.kafka import KafkaAddress
from headrace.config.pipeline import load_pipeline
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.pipelines import spec_path
from headrace.control.progress import read_progress
from headrace.control.runner import stop_engine
from headrace.observe import pidfile
from tests.support.database import Database
from tests.support.remedy import bare, carry_out, refused, steps
from tests.support.stack import RunningStack, running_stack
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(900)]

TOPIC = "put.public.things"
REMEDY = "headrace recover put"


@dataclass(frozen=True)
class Place:
    """A stack of this file's own, and a table mirrored into its Redis."""

    running: RunningStack
    context: Context
    database: Database
    redis: Any

    @property
    def data(self) -> Path:
        """Kafka's data directory."""
        return self.running.home.data("kafka")

    def assert_equal(self) -> None:
        """Fail unless status is green and the store holds what the database does."""
        settle(self.context)
        keys = list(self.redis.scan_iter("put:things:*"))
        rows = {row["id"]: row["name"] for row in map(json.loads, self.redis.mget(keys)) if row}
        assert rows == dict(self.database.run("TABLE things"))

    def down(self) -> None:
        """Stop Kafka, and Connect before it, as one does who restores Kafka."""
        for server in ("connect", "kafka"):
            pidfile.stop(self.running.home.pidfile(server), grace=60.0)

    def copied(self, folder: Path) -> Path:
        """Return a copy of Kafka's data directory, taken while it is stopped."""
        self.down()
        subprocess.run(["cp", "-a", str(self.data), str(folder / "copy")], check=True)
        self.running.stack.up(only={"kafka", "connect"})
        return folder / "copy"

    def put_back(self, copy: Path, *, beside: bool = False) -> None:
        """Have Kafka be what it was when the copy was taken; ``beside`` a Connect that lives on."""
        pidfile.stop(self.running.home.pidfile("kafka"), grace=60.0) if beside else self.down()
        shutil.rmtree(self.data)
        subprocess.run(["cp", "-a", str(copy), str(self.data)], check=True)
        self.running.stack.up(only={"kafka", "connect"})

    def end(self) -> int:
        """Return where the table's topic ends."""
        return Kafka(self.context.kafka_bootstrap).ends([TOPIC])[TOPIC, 0][1]

    def noted(self) -> int:
        """Return the offset of the record that stands for what the engine has applied."""
        history = load_pipeline(spec_path(self.context, "putcache")).checkpoint / "history.json"
        known = json.loads(history.read_bytes()) if history.exists() else {}
        return int(known.get(TOPIC, {}).get("last", {}).get("0", [-1])[0])

    def code(self) -> str:
        """Return the code of what the engine says is wrong with the sink or the table."""
        progress = read_progress(self.context.progress, "putcache")
        if progress is None:
            return ""
        trouble = progress.tables["public.things"].trouble or progress.error or {}
        return str(trouble.get("code", ""))

    def told(self) -> str:
        """Return the remedy that lag names for the table."""
        (seen,) = lag.measure(self.context).tables
        return seen.remedy

    def recovered(self) -> None:
        """Carry out what lag tells."""
        until(lambda: self.told() == REMEDY)
        carry_out(self.told(), self.running.home.root, self.database.run)
        self.assert_equal()

    def refused_by_connect(self) -> None:
        """Have Connect started anew, as the recovery tells: it cannot write to the topics that went back."""
        until(lambda: self.told() == REMEDY)
        error = refused(self.running.home.root, *steps(self.told())[1])
        assert error["code"] == "CONNECT_TROUBLED"
        assert error["hint"].startswith("Start Kafka Connect anew")
        assert error["hint"].endswith("Then run the same command again.")
        pidfile.stop(self.running.home.pidfile("connect"), grace=60.0)
        self.running.stack.up(only={"kafka", "connect"})


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with running_stack(only={"postgres", "kafka", "connect", "redis"}) as running:
        context = open_context(running.home.root)
        at = running.endpoints
        # Not dropped at the end: the whole stack goes.
        Database(at.postgres_dsn).run("CREATE DATABASE put")
        database = Database(urlunsplit(urlsplit(at.postgres_dsn)._replace(path="/put")))
        with Redis.from_url(at.redis_url) as redis:
            database.run(
                "CREATE TABLE things (id int PRIMARY KEY, name text)",
                "INSERT INTO things SELECT i, 'n' || i FROM generate_series(1, 100) i",
            )
            source.add(context, "put", database.dsn, settings=SourceSettings(heartbeat_ms=300))
            sink.add(context, "putcache", "redis", settings={"url": at.redis_url}, source="put")
            yield Place(running, context, database, redis)
            stop_engine(context.run)


def test_a_topic_with_more_partitions_is_recovered_as_it_is_told(place: Place) -> None:
    place.assert_equal()
    admin = AdminClient({**KafkaAddress.parse(place.context.kafka_bootstrap).librdkafka(), "log_level": 0})
    admin.create_partitions([NewPartitions(TOPIC, 2)])[TOPIC].result()
    place.database.run("UPDATE things SET name = 'moved'", "DELETE FROM things WHERE id > 90")
    until(lambda: place.code() == "TOPIC_REPARTITIONED")
    progress = read_progress(place.context.progress, "putcache")
    assert progress is not None
    assert (progress.tables["public.things"].trouble or {})["hint"] == REMEDY
    words = ["resnapshot", "put", "public.things", "--json", "--home", str(place.running.home.root)]
    done = CliRunner().invoke(app, words)
    error = json.loads(bare(done.stderr.splitlines()[-1]))["error"]
    assert (error["code"], error["hint"]) == ("RESNAPSHOT_PARTITIONS", REMEDY)
    place.recovered()


@pytest.mark.parametrize("beside", [False, True])
def test_a_kafka_that_was_put_back_is_recovered_as_lag_tells(
    place: Place, tmp_path: Path, beside: bool
) -> None:
    """Without Connect, as one does who restores Kafka; and beside a Connect that lives on."""
    place.assert_equal()
    copy = place.copied(tmp_path)
    place.assert_equal()
    before = place.end()
    first = 2001 if beside else 1001
    place.database.run(
        f"INSERT INTO things SELECT i, 'later' FROM generate_series({first}, {first + 299}) i",
        "UPDATE things SET name = 'applied' WHERE id <= 20",
        "DELETE FROM things WHERE id IN (SELECT id FROM things ORDER BY id LIMIT 10 OFFSET 60)",
    )
    place.assert_equal()
    until(lambda: place.noted() >= before)
    place.put_back(copy, beside=beside)
    until(lambda: place.code() == "KAFKA_WENT_BACK", 180)
    # What Kafka has lost stays in the store, and what is written now is told by a history with a hole.
    place.database.run("UPDATE things SET name = 'written since' WHERE id = 50")
    if beside:
        place.refused_by_connect()
    place.recovered()
