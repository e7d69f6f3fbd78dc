"""A dead letter: a record that a sink could not take, whole, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Letter", "LetterId"]


@dataclass(frozen=True, slots=True, order=True)
class LetterId:
    """What a record is, wherever it is set aside: its place in one incarnation of its topic.

    Args:
        topic, partition, offset: Its place in Kafka.
        epoch: Incarnation of the topic.
    """

    topic: str
    epoch: int
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Letter:
    """One rejected record of one sink.

    Args:
        id: Which record.
        sink: Which sink rejected it.
        table: The table the topic belongs to, ``schema.name``.
        code, reason: Why, see :class:`headrace.model.outcome.Rejected`.
        row: ``Key.id`` of its row; None when the record does not tell.
        at_ms: When it was set aside, Unix milliseconds.
        schema: The table's schema at that time, ``TableSchema.as_dict()`` as JSON.
        key, value: Raw bytes as they are in Kafka; None for a null.
        headers: Name and raw value of each Kafka header.
    """

    id: LetterId
    sink: str
    table: str
    code: str
    reason: str
    row: str | None
    at_ms: int
    schema: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
