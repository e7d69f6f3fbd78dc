"""A look into a topic, beside the query: what stands where, and from when on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from connectors.debezium import lsn_of
from headrace.model.errors import SourceError
from spark_jobs.reader import exact_reading

__all__ = ["KafkaPeek", "Mark", "Peek"]

_TIMEOUT_S = 10.0
_AT_ONCE = 500
_LISTEN_S = 0.01


@dataclass(frozen=True, slots=True)
class Mark:
    """A record's place and time.

    Args:
        offset: In its partition.
        lsn: Of the change in the source's log; None for rows that were read, not streamed.
        at_ms: When the connector sent it, Unix milliseconds.
    """

    offset: int
    lsn: int | None
    at_ms: int


class Peek(Protocol):
    """What may be asked of a topic."""

    def marks(self, topic: str, partition: int, begin: int, end: int) -> list[Mark]:
        """Return the records from ``begin`` to below ``end`` that are there, in order."""
        ...

    def first_since(self, topic: str, partition: int, at_ms: int) -> int | None:
        """Return the first offset sent at ``at_ms`` or later; None when there is none yet."""
        ...

    def beginning(self, topic: str, partition: int) -> int:
        """Return the first offset that is kept."""
        ...


class KafkaPeek:
    """Asks the broker; sees only what was committed.

    Args:
        bootstrap: Broker addresses.
        name: What brokers know the reader by.

    Every method raises SourceError (``KAFKA_UNREADABLE``) when the broker does not tell.
    """

    def __init__(self, bootstrap: str, name: str) -> None:
        self._consumer = Consumer(exact_reading(bootstrap, name))

    def marks(self, topic: str, partition: int, begin: int, end: int) -> list[Mark]:
        if begin >= end:
            return []
        self._consumer.assign([TopicPartition(topic, partition, begin)])
        try:
            return list(self._marks(topic, partition, begin, end))
        except KafkaException as error:
            raise _unreadable(topic, str(error)) from error
        finally:
            self._consumer.unassign()

    def _marks(self, topic: str, partition: int, begin: int, end: int) -> Iterator[Mark]:
        heard = time.monotonic()
        while True:
            messages = self._consumer.consume(_AT_ONCE, _LISTEN_S)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _TIMEOUT_S:
                raise _unreadable(topic, "no answer")
            for message in messages:
                error, offset = message.error(), message.offset()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise _unreadable(topic, error.str())
                if (message.topic(), message.partition()) != (topic, partition):
                    continue  # of an earlier look
                if offset is None or offset < begin:
                    continue
                if error is None and offset < end:
                    yield Mark(offset, lsn_of(message.value()), message.timestamp()[1])
                if offset + (error is None) >= end:
                    return

    def first_since(self, topic: str, partition: int, at_ms: int) -> int | None:
        try:
            (found,) = self._consumer.offsets_for_times([TopicPartition(topic, partition, at_ms)], _TIMEOUT_S)
        except KafkaException as error:
            raise _unreadable(topic, str(error)) from error
        return found.offset if found.offset >= 0 else None

    def beginning(self, topic: str, partition: int) -> int:
        try:
            low, _ = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), _TIMEOUT_S)
        except KafkaException as error:
            raise _unreadable(topic, str(error)) from error
        return int(low)


def _unreadable(topic: str, why: str) -> SourceError:
    return SourceError(
        f"Kafka does not tell what stands in {topic}: {why}",
        code="KAFKA_UNREADABLE",
        hint="headrace status",
    )
