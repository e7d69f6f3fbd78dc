"""Records read straight from Kafka, by whoever applies them: bytes cross no other process on their way."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.config.kafka import KafkaAddress
from spark_jobs.offsets import Ranges

__all__ = ["Raw", "Reader", "Unreadable", "exact_reading"]

_AT_ONCE = 500
_LISTEN_S = 0.002


class Unreadable(Exception):
    """The records are not to be had just now. Why not, somebody finds out who has the time."""


class Raw(NamedTuple):
    """A record as it is in Kafka."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def exact_reading(bootstrap: str, name: str) -> dict[str, str | int | float | bool]:
    """Return the settings of a consumer that reads given offsets, of what was committed, and nothing else."""
    return {
        **KafkaAddress.parse(bootstrap).librdkafka(),
        "client.id": name,
        "group.id": name,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        # Behind the last record stands a commit marker that is never delivered. That nothing follows is
        # told with the answer to a request that finds nothing; it is not to wait for something.
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 5,
        "log_level": 0,
    }


class Reader:
    """Reads ranges of offsets; connects when it is first asked, and stays so.

    Only what was committed is seen, as by the query itself.

    Args:
        bootstrap: Broker addresses.
        name: What brokers know the reader by.
        patience: Seconds without a record after which it gives up; a Spark job takes less than that.
    """

    def __init__(self, bootstrap: str, name: str, *, patience: float = 1.0) -> None:
        self._patience = patience
        self._settings: dict[str, str | int | float | bool] = {
            **exact_reading(bootstrap, name),
            "fetch.error.backoff.ms": 5,
            # What is fetched beyond the end of a range was fetched in vain, so no more than keeps who reads
            # busy; where that is reached, the next request is not to wait for long.
            "queued.max.messages.kbytes": 4_096,
            "fetch.queue.backoff.ms": 5,
        }
        self._consumer: Consumer | None = None

    def slices(self, ranges: Ranges, most_bytes: int) -> Iterator[list[Raw]]:
        """Yield the records of some ranges, each partition's in order, about ``most_bytes`` at a time.

        Raises:
            Unreadable: When some of them are not to be had.
        """
        found: list[Raw] = []
        size = 0
        with closing(self.stream(ranges)) as records:
            for raw in records:
                found.append(raw)
                size += len(raw.value or b"")
                if size > most_bytes:
                    yield found
                    found, size = [], 0
        if found:
            yield found

    def stream(self, ranges: Ranges) -> Generator[Raw]:
        """Yield the records of some ranges, each partition's in order, the partitions mixed.

        Raises:
            Unreadable: When some of them are not to be had.
        """
        # An empty one may lie where Kafka no longer has anything, and would be unreadable.
        ranges = {place: span for place, span in ranges.items() if span[0] < span[1]}
        if not ranges:
            return
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
        whole = False
        try:
            yield from self._stream(self._consumer, ranges)
            self._consumer.unassign()
            whole = True
        except KafkaException as error:
            raise Unreadable from error
        finally:
            if not whole:
                self.close()

    def close(self) -> None:
        """Leave the broker; the next read connects anew."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _stream(self, consumer: Consumer, ranges: Ranges) -> Iterator[Raw]:
        left = set(ranges)
        consumer.assign([TopicPartition(*place, begin) for place, (begin, _) in ranges.items()])
        heard = time.monotonic()
        topic, partition, begin, end = "", -1, 0, 0
        while left:
            messages = consumer.consume(_AT_ONCE, _LISTEN_S)
            for message in messages:
                offset, error = message.offset(), message.error()
                if message.partition() != partition or message.topic() != topic:
                    # Of one partition there are many in a row.
                    topic, partition = _place(message)
                    begin, end = ranges.get((topic, partition), (0, 0))
                if offset is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                    raise Unreadable
                if offset < begin:
                    continue  # of an earlier read
                if error is None:
                    if offset < end:
                        yield Raw(topic, partition, offset, message.key(), message.value())
                    offset += 1
                if offset >= end:
                    left.discard((topic, partition))
            now = time.monotonic()
            if messages:
                heard = now
            elif now - heard > self._patience:
                raise Unreadable


def _place(message: Message) -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    if topic is None or partition is None:
        raise Unreadable  # the trouble is the connection's
    return topic, partition
