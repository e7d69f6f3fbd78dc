"""The topics of a source: one per captured table, and those that the connector needs beside them."""

from __future__ import annotations

from connectors.base import Capture, most_bytes
from headrace.control.kafka import Topic

__all__ = ["topics_of"]

_HOUR_MS = 3_600_000


def topics_of(capture: Capture) -> list[Topic]:
    """Return every topic that a source has."""
    settings = capture.settings
    kept = {
        "cleanup.policy": "delete",
        "retention.ms": str(settings.retention_ms),
        "max.message.bytes": str(most_bytes(settings)),
    }
    passing = {"cleanup.policy": "delete", "retention.ms": str(24 * _HOUR_MS), "segment.ms": str(_HOUR_MS)}
    told = {"cleanup.policy": "delete", "retention.ms": "-1"}
    return [
        *(Topic(capture.topic(schema.table), settings.partitions, kept) for schema in capture.tables),
        Topic(capture.topic(capture.signals), 1, passing),
        Topic(capture.topic(capture.heartbeat), 1, passing),
        Topic(f"__debezium-heartbeat.{capture.source}", 1, passing),
        Topic(capture.notifications, 1, told),
    ]
