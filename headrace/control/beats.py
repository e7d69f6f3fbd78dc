"""Heartbeats, of which each is read once: whether the connector told values as they are.

A worker may begin to read values otherwise, and end it: another time zone, driver or options. What it told
meanwhile is wrong in every store, and the newest heartbeat is right again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from connectors.registry import misread, newest_beat
from headrace.control.capture import capture_of
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry
from headrace.control.remedies import read_anew
from headrace.control.verdicts import State, Verdict, record
from headrace.model.errors import StackError

__all__ = ["NEWEST", "VALUES_MISREAD", "read_beats", "told_otherwise"]

VALUES_MISREAD = "VALUES_MISREAD"
"""Code of the verdict upon a table of whose values some were told as others."""

NEWEST = 8
"""Of so many records of its topic the newest heartbeat is one; the others are marks."""

_MEND = "mend the Connect worker's time zone, driver or options first"


def told_otherwise(kind: str, beats: Sequence[Mapping[str, Any]]) -> str:
    """Return why values cannot be believed, by some heartbeats; empty when they can."""
    types = misread(kind, beats)
    return f"the connector tells values of {types} as others; {_MEND}" if types else ""


def read_beats(
    context: Context, registry: Registry, kafka: Kafka, entry: SourceEntry, since: int | None
) -> tuple[int | None, bool]:
    """Note the tables of which a heartbeat from ``since`` on shows that values were told as others.

    Args:
        context: The installation.
        registry: Its registry.
        kafka: Its Kafka.
        entry: The source.
        since: Up to where they were read; None when they never were: then the newest one is.

    Returns:
        Up to where they are read now, and whether anything was noted. While Kafka does not answer that is
        ``since``: they are read later.
    """
    capture = capture_of(context, entry)
    topic = capture.topic(capture.heartbeat)
    try:
        if since is None:
            end = kafka.ends([topic], committed=True)[topic, 0][1]
            records = newest_beat(entry.kind, kafka.tail(topic, NEWEST))
        else:
            records, end = kafka.committed(topic, since)
            if end < since:  # the topic was made anew
                records, end = kafka.committed(topic)
    except (StackError, KeyError):
        return since, False
    wrong = False
    for table in entry.tables if misread(entry.kind, records) else ():
        if types := misread(entry.kind, records, table.schema):
            said = f"the connector told values of {types} as others; if it does so still, {_MEND}"
            verdict = Verdict(State.RESYNC_REQUIRED, said, read_anew(entry, [table.schema]))
            record(registry, entry, [table.topic], VALUES_MISREAD, verdict)
            wrong = True
    return end, wrong
