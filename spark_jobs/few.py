"""A few records, read straight from Kafka: a Spark job costs more than all the work on them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_jobs.offsets import Ranges

__all__ = ["Few", "Raw"]

_AT_ONCE = 500
_LISTEN_S = 0.002
_MOST_BYTES = 32 << 20
"""A few large records are many: they are for who can work on the first before the last is there."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A record as it is in Kafka."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Few:
    """Reads ranges of offsets; connects when it is first asked, and stays so.

    Only what was committed is seen, as by the query itself.

    Args:
        bootstrap: Broker addresses.
        name: What brokers know the reader by.
        patience: Seconds that a read may take; a Spark job takes less than that.
    """

    def __init__(self, bootstrap: str, name: str, *, patience: float = 1.0) -> None:
        self._patience = patience
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            # Behind the last record stands a commit marker that is never delivered. That nothing follows is
            # told with the answer to a request that finds nothing; it is not to wait for something.
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,
            "fetch.error.backoff.ms": 5,
            "queued.max.messages.kbytes": 16_384,
            "log_level": 0,
        }
        self._consumer: Consumer | None = None

    def read(self, ranges: Ranges) -> list[Raw] | None:
        """Return the records of some ranges, each partition's in order; None when they are not all to be had.

        Why not, a reader that has the time finds out: what is missing may be gone for good.
        """
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
        try:
            found = self._read(self._consumer, ranges)
            self._consumer.unassign()
        except KafkaException:
            found = None
        if found is None:
            self.close()
        return found

    def close(self) -> None:
        """Leave the broker; the next read connects anew."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, consumer: Consumer, ranges: Ranges) -> list[Raw] | None:
        left = {place: end for place, (_, end) in ranges.items()}
        consumer.assign([TopicPartition(*place, begin) for place, (begin, _) in ranges.items()])
        found: list[Raw] = []
        size = 0
        deadline = time.monotonic() + self._patience
        while left:
            if time.monotonic() > deadline or size > _MOST_BYTES:
                return None
            for message in consumer.consume(_AT_ONCE, _LISTEN_S):
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                error = message.error()
                if topic is None or partition is None or offset is None:
                    return None  # the trouble is the connection's
                begin, end = ranges.get((topic, partition), (0, 0))
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    return None
                if offset < begin:
                    continue  # of an earlier read
                if error is None:
                    if offset < end:
                        found.append(Raw(topic, partition, offset, message.key(), message.value()))
                        size += len(message)
                    offset += 1
                if offset >= left.get((topic, partition), offset + 1):
                    del left[topic, partition]
        return found
