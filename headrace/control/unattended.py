"""A slot that is moved on while Connect does not answer and the connector does not read from it.

Whoever moves it takes what lies between, and the connector goes on behind that without a word. So where the
slot was is kept from look to look, with where the topics ended: the connector confirms nothing that it has
not delivered.
"""

from __future__ import annotations

from typing import Any

from connectors.base import Capture, Hold
from connectors.registry import newest_beat
from headrace.control.beats import NEWEST
from headrace.control.entries import WatchEntry
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry, living
from headrace.model.errors import StackError

__all__ = ["moved_on"]


def moved_on(registry: Registry, kafka: Kafka, capture: Capture, entry: SourceEntry, hold: Hold) -> str:
    """Return why changes are lost when somebody has moved the slot on since the last look; else remember it.

    To be asked while Connect does not answer. Where Kafka has got anything since, or does not answer either,
    it may have been the connector.
    """
    reads = hold.active and hold.barred is None
    if reads or hold.confirmed is None or entry.loaded_ms is None:
        return ""
    heartbeat = capture.topic(capture.heartbeat)
    topics = [heartbeat, *(table.topic for table in entry.tables)]
    try:
        ends = {f"{topic} {partition}": end for (topic, partition), (_, end) in kafka.ends(topics).items()}
        beats = newest_beat(entry.kind, kafka.tail(heartbeat, NEWEST))
    except StackError:
        return ""
    now: dict[str, Any] = {"timeline": hold.timeline, "ends": ends}
    with registry.begin() as session:
        kept = session.get(WatchEntry, entry.name)
        if kept is None or living(session, entry) is None:
            return ""
        before = kept.unattended or {}
        if now == {name: before.get(name) for name in now}:
            # What was committed before a heartbeat was delivered before it.
            read = max([before["confirmed"], *(int(beat["source"].get("lsn") or 0) for beat in beats)])
            if hold.confirmed > read:
                passed = f"{hold.confirmed - read} bytes of WAL that were never read"
                return f"the slot was moved past {passed}, while Connect did not answer"
        now["confirmed"] = hold.confirmed
        if now != before:
            kept.unattended = now
    return ""
