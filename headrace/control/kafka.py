"""Kafka's administration: topics, their identity and ends, and single records read for what they say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic
from tenacity import (
    Retrying,
    retry_if_exception,
    retry_if_result,
    stop_after_delay,
    wait_exponential_jitter,
)

from headrace.config.kafka import KafkaAddress
from headrace.config.secrets import mask_text
from headrace.model.errors import StackError, UsageError, is_interruption

__all__ = ["Kafka", "Topic", "ends_of"]

_TIMEOUT_S = 15.0
_SOON = wait_exponential_jitter(multiplier=0.02, max=1, jitter=0.02)
_QUIET = {"log_level": 0}
_READING: dict[str, Any] = {
    "group.id": "headrace-control",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 50,
    "fetch.message.max.bytes": 256 * 1024,
    **_QUIET,
}
_REFUSALS = frozenset(
    (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.TOPIC_EXCEPTION,
    )
)
"""Errors of a broker that answers."""
_BOTH_ENDS = (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
# A broker names itself leader of a new, moved or vanishing partition before it acts as one.
_PASSING = frozenset(
    (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.REQUEST_TIMED_OUT,
    )
)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to be there.

    Args:
        name: Its name.
        partitions: How many; fixed for its life.
        config: Topic settings.
    """

    name: str
    partitions: int
    config: Mapping[str, str]


class Kafka:
    """The broker at ``bootstrap``; connects lazily, and keeps its connections as long as it lives.

    Raises:
        StackError: From every call, when it does not answer (``KAFKA_UNREACHABLE``), or answers and
            refuses (``KAFKA_REFUSED``).
        UsageError: When no client can be made with the settings (``KAFKA_SETTINGS_INVALID``).
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = KafkaAddress.parse(bootstrap).bootstrap
        self._reach = KafkaAddress.parse(bootstrap).librdkafka()
        try:
            self._admin = AdminClient({**self._reach, "socket.timeout.ms": 10_000, **_QUIET})
        except KafkaException as error:
            raise UsageError(
                f"Kafka cannot be reached with these settings: {mask_text(error.args[0].str())}.",
                code="KAFKA_SETTINGS_INVALID",
                hint="Check the file that HEADRACE_KAFKA_PROPERTIES names, and HEADRACE_KAFKA_BOOTSTRAP.",
            ) from None
        self._idle: list[Consumer] = []

    def create(self, topics: Sequence[Topic], *, only_ask: bool = False) -> list[str]:
        """Create those topics that do not exist; return the new ones, of which the broker knows by then.

        With ``only_ask`` none is made: the broker says whether it would.

        Raises:
            StackError: When it refuses (``KAFKA_REFUSED``).
        """
        replicas = min(3, len(self._metadata().brokers))
        wanted = [NewTopic(t.name, t.partitions, replicas, config=dict(t.config)) for t in topics]
        futures = self._admin.create_topics(wanted, operation_timeout=_TIMEOUT_S, validate_only=only_ask)
        made = self._settled(futures, "create topic", KafkaError.TOPIC_ALREADY_EXISTS)
        if only_ask:
            return list(made)
        if not self._heard(lambda known: made.keys() <= known):
            raise self._trouble(TimeoutError(f"not within {_TIMEOUT_S:.0f} s"), "show its new topics")
        return list(made)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics; idempotent. The broker knows of it then, unless somebody makes one anew."""
        if not names:
            return
        futures = self._admin.delete_topics(list(names), operation_timeout=_TIMEOUT_S)
        self._heard(
            self._settled(futures, "delete topic", KafkaError.UNKNOWN_TOPIC_OR_PART).keys().isdisjoint
        )

    def _heard(self, is_so: Callable[[set[str]], bool]) -> bool:
        """Wait until the names of all topics are so, for the controller answers before brokers have heard."""
        patiently = Retrying(
            retry=retry_if_result(lambda so: not so),
            stop=stop_after_delay(_TIMEOUT_S),
            wait=_SOON,
            retry_error_callback=lambda _: False,
        )
        return bool(patiently(lambda: is_so(self.names())))

    def names(self) -> set[str]:
        """Return the names of all topics."""
        return set(self._metadata().topics)

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        """Return the identity of each topic that exists; a topic made anew under its name has another."""
        existing = self.names()
        known = [name for name in names if name in existing]
        if not known:
            return {}
        futures = self._admin.describe_topics(TopicCollection(known))
        described = self._settled(futures, "describe topic", KafkaError.UNKNOWN_TOPIC_OR_PART)
        return {name: str(topic.topic_id) for name, topic in described.items()}

    def _settled(self, futures: Mapping[str, Any], what: str, tolerated: int) -> dict[str, Any]:
        """Return what became of each topic, without those that met the ``tolerated`` error."""
        done: dict[str, Any] = {}
        for name, future in futures.items():
            error = future.exception()
            if error is None:
                done[name] = future.result()
            elif not isinstance(error, KafkaException) or error.args[0].code() != tolerated:
                raise self._trouble(error, f"{what} {name}") from error
        return done

    def ends(
        self, names: Sequence[str], *, committed: bool = False
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """Return ``(topic, partition)`` → first kept offset and the offset after the last record.

        The end is the log's, not that of committed transactions: what is below it may still be
        on its way to readers, but nothing that was delivered before the call lies above it.
        With ``committed`` readers see all that is below it.
        """
        patiently = Retrying(
            retry=retry_if_exception(_passes),
            stop=stop_after_delay(_TIMEOUT_S),
            wait=_SOON,
            reraise=True,
        )
        try:
            return patiently(self._ends_now, names, committed)
        except KafkaException as error:
            raise self._trouble(error, f"read the ends of {', '.join(names)}") from error

    def _ends_now(self, names: Sequence[str], committed: bool) -> dict[tuple[str, int], tuple[int, int]]:
        partitions = self._partitions(names)
        if not partitions:
            return {}
        first, after = (self._list_offsets(partitions, spec, committed) for spec in _BOTH_ENDS)
        return {place: (first[place], after[place]) for place in first}

    def _list_offsets(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec, committed: bool
    ) -> dict[tuple[str, int], int]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self._admin.list_offsets(
            dict.fromkeys(partitions, spec), isolation_level=level, request_timeout=_TIMEOUT_S
        )
        return {
            (partition.topic, partition.partition): future.result().offset
            for partition, future in futures.items()
        }

    def put(self, topic: str, values: Mapping[str, Mapping[str, Any]]) -> None:
        """Write JSON values under their keys; return when every replica that counts has them."""
        settings = {"acks": "all", "delivery.timeout.ms": int(_TIMEOUT_S * 1000), **_QUIET}
        producer = Producer({**self._reach, **settings})
        refused: list[KafkaError] = []

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        for key, value in values.items():
            producer.produce(topic, json.dumps(value).encode(), key.encode(), on_delivery=told)
        producer.flush()
        if refused:
            raise self._trouble(KafkaException(refused[0]), f"take what is written to {topic}")

    def tail(self, topic: str, count: int) -> list[dict[str, Any]]:
        """Return up to ``count`` of the last committed JSON values of a one-partition topic, oldest first."""
        ends = self.ends([topic], committed=True)
        if (topic, 0) not in ends:
            return []
        low, high = ends[topic, 0]
        # Each transaction leaves a marker that takes an offset and is no record.
        return list(self._values(topic, max(low, high - 4 * count), high))[-count:]

    def committed(self, topic: str, since: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Return the committed JSON values of a one-partition topic from an offset on, and where they end.

        Raises:
            StackError: When they are not to be had up to the end.
        """
        low, high = self.ends([topic], committed=True).get((topic, 0), (0, 0))
        return list(self._values(topic, max(low, since), high)), high

    def firsts(self, places: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the first committed JSON value at or after each offset, by topic and partition.

        Partitions without one are left out.
        """
        found: dict[tuple[str, int], dict[str, Any]] = {}
        waiting = set(places)
        with self._reader() as reader:
            reader.assign(
                [TopicPartition(topic, partition, offset) for (topic, partition), offset in places.items()]
            )
            while waiting:
                message = reader.poll(_TIMEOUT_S)
                if message is None:
                    break
                problem = message.error()
                if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                    raise self._trouble(KafkaException(problem), f"read {message.topic()}")
                place = (message.topic() or "", message.partition() or 0)
                if place not in waiting:
                    continue
                value = None if problem is not None else _json(message)
                if value is not None:
                    found[place] = value
                if value is not None or problem is not None:
                    waiting.discard(place)
        return found

    def records(self, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
        """Yield the records with ``start <= offset < end`` of one partition, all of which are committed.

        Raises:
            StackError: When they are not to be had up to the end.
        """
        if start >= end:
            return
        with self._reader() as reader:
            reader.assign([TopicPartition(topic, partition, start)])
            while True:
                message = reader.poll(_TIMEOUT_S)
                if message is None:
                    raise self._trouble(KafkaException(KafkaError(KafkaError._TIMED_OUT)), f"read {topic}")
                problem, offset = message.error(), message.offset() or 0
                # Markers of transactions are no records, so the last offsets may be passed without a word.
                if problem is not None and problem.code() == KafkaError._PARTITION_EOF:
                    if offset >= end:
                        return
                    continue  # a broker that has just started does not know yet how far it may be read
                if problem is not None:
                    raise self._trouble(KafkaException(problem), f"read {topic}")
                if offset < end:
                    yield message
                if offset >= end - 1:
                    return

    def _values(self, topic: str, start: int, end: int) -> Iterator[dict[str, Any]]:
        values = (_json(message) for message in self.records(topic, 0, start, end))
        return (value for value in values if value is not None)

    @contextmanager
    def _reader(self) -> Iterator[Consumer]:
        """Lend a consumer that reads nothing yet; each costs a connection and threads, so they are kept."""
        consumer = self._idle.pop() if self._idle else Consumer({**_READING, **self._reach})
        try:
            yield consumer
            consumer.unassign()
        except BaseException as error:
            consumer.close()
            if is_interruption(error):
                raise KeyboardInterrupt from error
            raise
        self._idle.append(consumer)

    def _partitions(self, names: Sequence[str]) -> list[TopicPartition]:
        topics = self._metadata().topics
        return [
            TopicPartition(name, partition)
            for name in names
            if name in topics
            for partition in sorted(topics[name].partitions)
        ]

    def _metadata(self) -> Any:
        try:
            return self._admin.list_topics(timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._trouble(error, "list topics") from error

    def _trouble(self, error: BaseException, what: str) -> StackError:
        known = error.args[0] if error.args else None
        reason = known.str() if isinstance(known, KafkaError) else str(error)
        if isinstance(known, KafkaError) and known.code() in _REFUSALS:
            return StackError(
                f"Kafka at {self._bootstrap} answers and refuses to {what}: {reason}",
                code="KAFKA_REFUSED",
                hint="Have Kafka allow it: rights come by `kafka-acls.sh --add …` for the user that"
                " HEADRACE_KAFKA_PROPERTIES names, limits by the brokers' settings.",
            )
        return StackError(
            f"Kafka at {self._bootstrap} does not {what}: {reason}",
            code="KAFKA_UNREACHABLE",
            hint="`headrace up` starts the local one; of another, check HEADRACE_KAFKA_BOOTSTRAP and"
            " HEADRACE_KAFKA_PROPERTIES.",
        )


def _passes(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _PASSING


def _json(message: Message) -> dict[str, Any] | None:
    try:
        value = json.loads(message.value() or b"null")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def ends_of(ends: Mapping[tuple[str, int], tuple[int, int]], topic: str) -> dict[int, int]:
    """Return partition → end offset of one topic."""
    return {partition: high for (name, partition), (_, high) in ends.items() if name == topic}
