"""A plain Python consumer: Kafka in, one store out; what a good programmer writes in a day, without Spark.

    python -m tests.bench.peers.consumer

Reads one line of JSON, :class:`Task`, says ``ready``, begins at the next line, says ``done`` at the end of
the topics and stays until its input ends. It reads in batches, commits offsets after each, and relies on
versions in the store, so that a batch that runs twice does no harm. It knows nothing of bad records, columns
that change, values that were not sent (unchanged TOAST), truncates, keys that change, deletes that an old
record would undo, or a store that asks for patience.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.config.kafka import KafkaAddress

__all__ = ["Row", "Table", "Task"]


@dataclass(frozen=True, slots=True)
class Table:
    """One topic and where its rows go.

    Args:
        target: Index, or head of the keys, or directory.
        key: The key's columns.
        types: Column → logical type.
        epoch: The topic's incarnation, the high part of versions.
    """

    target: str
    key: tuple[str, ...]
    types: dict[str, str]
    epoch: int


@dataclass(frozen=True, slots=True)
class Task:
    """What to do.

    Args:
        store: ``elasticsearch``, ``redis`` or ``delta``.
        url: Its address, or directory.
        bootstrap: Kafka's.
        group: Consumer group, for the offsets.
        tables: By topic.
        batch: Most messages in one batch.
        threads: Bulk requests under way at once.
    """

    store: str
    url: str
    bootstrap: str
    group: str
    tables: dict[str, Table]
    batch: int = 10_000
    threads: int = 2

    def dump(self) -> str:
        """Return the task as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def load(cls, text: str) -> Task:
        """Invert :meth:`dump`."""
        told = json.loads(text)
        tables = {
            topic: Table(**{**table, "key": tuple(table["key"])}) for topic, table in told["tables"].items()
        }
        return cls(**{**told, "tables": tables})


@dataclass(frozen=True, slots=True)
class Row:
    """One change.

    Args:
        table: Where to.
        key: The row's key as text.
        version: Larger wins.
        image: The row as it is, or as it was when it is gone; the key's columns at least.
        gone: Whether it is gone.
    """

    table: Table
    key: str
    version: int
    image: dict[str, Any]
    gone: bool


class Writer(Protocol):
    """A store."""

    def write(self, rows: Iterator[Row]) -> None:
        """Store them; older versions than the stored ones are passed over."""
        ...


def rows(messages: list[Message], tables: dict[str, Table]) -> Iterator[Row]:
    """Yield what the messages say."""
    for message in messages:
        table, value = tables[message.topic() or ""], message.value()
        if value is None:
            continue
        envelope = orjson.loads(value)
        after = envelope["after"]
        image = envelope["before"] if after is None else after
        key = ":".join([str(image[name]) for name in table.key])
        version = table.epoch << 44 | ((message.offset() or 0) + 1)
        yield Row(table, key, version, image, after is None)


def consume(task: Task, writer: Writer) -> int:
    """Read the topics to their ends, a batch at a time; return how many changes there were."""
    consumer = Consumer(
        {
            **KafkaAddress.parse(task.bootstrap).librdkafka(),
            "group.id": task.group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            # Many messages at once, and no pause when the local queue has been full.
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 10,
            "queued.min.messages": 200_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0) for topic in task.tables])
    waiting, total = set(task.tables), 0
    try:
        while waiting:
            got = consumer.consume(task.batch, 0.1)
            for message in [message for message in got if message.error()]:
                problem = message.error()
                if problem is None or problem.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(problem)
                waiting.discard(message.topic() or "")
            batch = [message for message in got if not message.error()]
            if batch:
                writer.write(rows(batch, task.tables))
                last = {message.topic() or "": (message.offset() or 0) + 1 for message in batch}
                places = [TopicPartition(topic, 0, offset) for topic, offset in last.items()]
                consumer.commit(offsets=places, asynchronous=False)
                total += len(batch)
    finally:
        consumer.close()
    return total


def main() -> None:
    """Do one task."""
    from tests.bench.peers.writers import writer_of

    task = Task.load(sys.stdin.readline())
    writer = writer_of(task)
    print("ready", flush=True)
    sys.stdin.readline()
    total = consume(task, writer)
    print(f"done {total}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
