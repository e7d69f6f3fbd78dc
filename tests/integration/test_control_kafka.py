"""Kafka's administration against the real broker: topics that came this moment, or are going."""

from __future__ import annotations

import uuid
from threading import Thread

import pytest
from confluent_kafka import Producer

from headrace.config.kafka import KafkaAddress
from headrace.control.kafka import Kafka, Topic
from headrace.model.errors import StackError
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

TOPICS = 40
ROUNDS = 5


def named(prefix: str) -> list[str]:
    return [f"{prefix}.{number}" for number in range(TOPICS)]


@pytest.mark.deep
def test_ends_of_topics_that_were_created_this_moment_are_told(stack: RunningStack) -> None:
    """Their broker says for a moment that it does not lead them; only many rounds meet that moment."""
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


@pytest.mark.deep
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


@pytest.mark.deep
def test_what_cannot_be_read_to_its_end_is_not_taken_for_all(
    stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"short.{uuid.uuid4().hex}"
    kafka = Kafka(stack.endpoints.kafka_bootstrap)
    kafka.create([Topic(name, 1, {})])
    try:
        kafka.put(name, {"a": {"n": 1}, "b": {"n": 2}})
        values, end = kafka.committed(name)
        assert [value["n"] for value in values] == [1, 2]
        assert kafka.committed(name, since=end) == ([], end)
        monkeypatch.setattr("headrace.control.kafka._TIMEOUT_S", 2.0)
        # As a broker that has just started: what it lets be read is less than what it has told.
        monkeypatch.setattr(kafka, "ends", lambda *_, **__: {(name, 0): (0, end + 1)})
        with pytest.raises(StackError) as refused:
            kafka.committed(name)
        assert refused.value.code == "KAFKA_UNREACHABLE"
    finally:
        kafka.delete([name])


def test_a_broker_that_answers_and_refuses_is_not_told_to_be_away(stack: RunningStack) -> None:
    """What it would refuse is known without anything being made."""
    name = f"refused.{uuid.uuid4().hex}"
    kafka = Kafka(stack.endpoints.kafka_bootstrap)
    assert kafka.create([Topic(name, 1, {})], only_ask=True) == [name]
    for topic in (Topic(name, 1, {"retention.ms": "soon"}), Topic("x" * 300, 1, {})):
        for only_ask in (True, False):
            with pytest.raises(StackError) as refused:
                kafka.create([topic], only_ask=only_ask)
            assert refused.value.code == "KAFKA_REFUSED"
    assert name not in kafka.names()


def test_what_a_transaction_tells_is_heard_once_it_is_committed(stack: RunningStack) -> None:
    name = f"open.{uuid.uuid4().hex}"
    kafka = Kafka(stack.endpoints.kafka_bootstrap)
    kafka.create([Topic(name, 1, {})])
    reach = KafkaAddress.parse(stack.endpoints.kafka_bootstrap).librdkafka()
    producer = Producer({**reach, "transactional.id": name})
    try:
        producer.init_transactions(WAIT_S)
        for number in (1, 2):
            producer.begin_transaction()
            producer.produce(name, b'{"n": %d}' % number)
            assert producer.flush(WAIT_S) == 0
            if number == 1:
                producer.commit_transaction(WAIT_S)
        before, end = kafka.committed(name)
        assert before == [{"n": 1}]
        producer.commit_transaction(WAIT_S)
        until(lambda: kafka.committed(name, end)[0] == [{"n": 2}])
    finally:
        kafka.delete([name])
