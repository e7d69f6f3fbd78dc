"""Kafka's administration against the real broker: topics that came this moment, or are going."""

from __future__ import annotations

import uuid
from threading import Thread

import pytest

from headrace.control.kafka import Kafka, Topic
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack

TOPICS = 40
ROUNDS = 5


def named(prefix: str) -> list[str]:
    return [f"{prefix}.{number}" for number in range(TOPICS)]


def test_ends_of_topics_that_were_created_this_moment_are_told(stack: RunningStack) -> None:
    """Their broker says for a moment that it does not lead them."""
    kafka = Kafka(stack.endpoints.kafka_bootstrap)
    made: list[str] = []
    try:
        for _ in range(ROUNDS):
            names = named(f"new.{uuid.uuid4().hex}")
            made += names
            creating = Thread(target=kafka.create, args=([Topic(name, 1, {}) for name in names],))
            creating.start()
            while creating.is_alive():
                assert set(kafka.ends(names).values()) <= {(0, 0)}
            creating.join()
            assert kafka.ends(names) == {(name, 0): (0, 0) for name in names}
    finally:
        kafka.delete(made)


def test_topics_that_vanish_while_asked_are_left_out(stack: RunningStack) -> None:
    kafka = Kafka(stack.endpoints.kafka_bootstrap)
    names = named(f"old.{uuid.uuid4().hex}")
    kafka.create([Topic(name, 1, {}) for name in names])
    deleting = Thread(target=kafka.delete, args=(names,))
    deleting.start()
    while deleting.is_alive():
        assert set(kafka.ends(names)) <= {(name, 0) for name in names}
    deleting.join()
    assert kafka.ends(names) == {}
