"""A broker that is killed while transactions are being committed forgets none of them."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from headrace.config.kafka import KafkaAddress
from headrace.control.kafka import Kafka, Topic
from headrace.observe import pidfile
from tests.support.stack import RunningStack, running_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

KILLS = 5
TOPICS = 24
"""The more there are, the longer a transaction is on its way to its end."""
TRANSACTIONS = 20


def write_and_kill(bootstrap: str, names: Sequence[str], stack: RunningStack) -> None:
    """Commit transactions over all topics, and kill the broker when it has just promised another."""
    reach = KafkaAddress.parse(bootstrap).librdkafka()
    producer = Producer({**reach, "transactional.id": "ours", "linger.ms": 0, "log_level": 0})
    producer.init_transactions(60)
    for _ in range(TRANSACTIONS):
        producer.begin_transaction()
        for name in names:
            producer.produce(name, b"{}")
        producer.commit_transaction(10)
    pid = pidfile.alive(stack.stack.home.pidfile("kafka"))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def shown(kafka: Kafka, names: Sequence[str]) -> bool:
    """Return whether nothing lies behind a transaction that is not over."""
    return kafka.ends(names) == kafka.ends(names, committed=True)


def test_no_transaction_is_forgotten_by_a_broker_that_was_killed() -> None:
    with running_stack(only={"kafka"}) as stack:
        bootstrap = stack.endpoints.kafka_bootstrap
        names = [f"held.{uuid.uuid4().hex}.{number}" for number in range(TOPICS)]
        Kafka(bootstrap).create([Topic(name, 1, {}) for name in names])
        for _ in range(KILLS):
            write_and_kill(bootstrap, names, stack)
            stack.stack.up(only={"kafka"})
            until(lambda: shown(Kafka(bootstrap), names))
