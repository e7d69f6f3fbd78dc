"""A real broker that comes back without the end of a topic, and what only looks like that."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.config.kafka import KafkaAddress
from headrace.control.ends import read_ends
from headrace.control.kafka import Kafka, Topic
from headrace.control.registry import Registry
from headrace.control.verdicts import standing
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from headrace.observe import pidfile
from tests.support.entries import source_entry
from tests.support.stack import RunningStack, running_stack

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(600)]

TOPIC = "ends.public.t"


@dataclass(frozen=True)
class Place:
    """A broker of this file's own, and a source whose one topic it has."""

    running: RunningStack
    registry: Registry

    @property
    def bootstrap(self) -> str:
        return self.running.endpoints.kafka_bootstrap

    def write(self, first: int, count: int) -> None:
        """Write records."""
        Kafka(self.bootstrap).put(TOPIC, {str(n): {"n": n} for n in range(first, first + count)})

    def restarted(self, copy: Path | None = None) -> None:
        """Start the broker anew, with its topic as it was when a copy was taken."""
        folder = self.running.home.data("kafka") / f"{TOPIC}-0"
        pidfile.stop(self.running.home.pidfile("kafka"), grace=60.0)
        if copy is not None:
            shutil.rmtree(folder)
            subprocess.run(["cp", "-a", str(copy), str(folder)], check=True)
        self.running.stack.up(only={"kafka"})

    def copied(self, to: Path) -> Path:
        """Return a copy of the topic's directory, taken while the broker is stopped."""
        pidfile.stop(self.running.home.pidfile("kafka"), grace=60.0)
        subprocess.run(["cp", "-a", str(self.running.home.data("kafka") / f"{TOPIC}-0"), str(to)], check=True)
        self.running.stack.up(only={"kafka"})
        return to

    def look(self) -> list[str]:
        """Look as the watcher does; return what stands upon the table."""
        read_ends(self.registry, Kafka(self.bootstrap), self.registry.source("ends"))
        return [found.reason for found in standing(self.registry, "ends")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running_stack(only={"kafka"}) as running:
        registry = Registry(tmp_path_factory.mktemp("registry") / "registry.db")
        kafka = Kafka(running.endpoints.kafka_bootstrap)
        kafka.create([Topic(TOPIC, 1, {"retention.ms": "-1"})])
        entry = source_entry(
            "ends", [TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32),), ("id",))]
        )
        entry.tables[0].topic_id = kafka.ids([TOPIC])[TOPIC]
        with registry.begin() as session:
            session.add(entry)
        yield Place(running, registry)


def test_what_retention_takes_and_what_a_restart_does_is_no_loss(place: Place) -> None:
    place.write(0, 50)
    assert place.look() == []
    admin = AdminClient({**KafkaAddress.parse(place.bootstrap).librdkafka(), "log_level": 0})
    for future in admin.delete_records([TopicPartition(TOPIC, 0, 50)]).values():
        future.result()
    assert Kafka(place.bootstrap).ends([TOPIC]) == {(TOPIC, 0): (50, 50)}
    assert place.look() == []
    place.restarted()
    assert Kafka(place.bootstrap).ends([TOPIC]) == {(TOPIC, 0): (50, 50)}
    assert place.look() == []


def test_the_end_of_a_topic_that_a_broker_has_lost_is_missed(place: Place, tmp_path: Path) -> None:
    before = Kafka(place.bootstrap).ends([TOPIC])[TOPIC, 0][1]
    copy = place.copied(tmp_path / "copy")
    place.write(1000, 30)
    assert place.look() == []
    place.restarted(copy)
    assert Kafka(place.bootstrap).ends([TOPIC])[TOPIC, 0][1] == before
    lost = f"Kafka has lost records of {TOPIC}: partition 0 ends at {before}"
    said = [f"{lost}, and was seen to end at {before + 30}"]
    assert place.look() == said
    place.write(2000, 60)
    assert place.look() == said
