"""Where topics end: one that ends below where it was seen to end has lost records.

A sink that had applied them finds that by itself. One that had not, for it was paused, misses nothing. A
connector whose position went back with them tells them again; so they are lost when it has told what was
committed after that was seen, and they have not come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select

from connectors.base import Capture
from connectors.registry import newest_beat
from headrace.control.beats import NEWEST
from headrace.control.entries import EndEntry
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry, living
from headrace.control.remedies import recover
from headrace.control.verdicts import State, Verdict, over, record, worsen
from headrace.model.errors import StackError

__all__ = ["WENT_BACK", "read_ends"]

WENT_BACK = "KAFKA_WENT_BACK"
"""Code of the verdict upon a table of whose topic Kafka has lost records."""

_Ends = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a topic.

    Args:
        ends: Partition → where it was seen to end, the highest.
        doubted: Where the database's log was when it was first seen to end earlier; None when it does not.
    """

    ends: Mapping[str, int]
    doubted: int | None = None


def read_ends(
    registry: Registry, kafka: Kafka, capture: Capture, entry: SourceEntry, flushed: int | None
) -> None:
    """Note the tables whose topics end below where an earlier look saw them end.

    Retention moves the first offset only, and a topic that was made anew has another identity. While Kafka
    does not answer what is known stays.

    Args:
        registry: The installation's registry.
        kafka: The broker.
        capture: What the source's connector is told.
        entry: The source.
        flushed: Where the database's log is now, at least; None when that is not known.
    """
    ids = {table.topic: table.topic_id for table in entry.tables}
    known = _known(registry, entry.name, ids)
    try:
        # Before the ends: what it has told by then is in them.
        told = _told(kafka, capture, entry) if any(one.doubted is not None for one in known.values()) else 0
        ends = _ends(kafka, list(ids))
        lower = [topic for topic, one in known.items() if _lower(one.ends, ends.get(topic, {}))]
        if lower:
            # Read once more, and the identity after that: what was made anew meanwhile has another one.
            ends |= _ends(kafka, lower)
            now = kafka.ids(lower)
            lower = [topic for topic in lower if now.get(topic) == ids[topic]]
    except StackError:
        return
    seen = dict(known)
    for topic, found in ends.items():
        before = known.get(topic, _Known({}))
        partition = _lower(before.ends, found) if topic in lower else ""
        if not partition:
            if before.doubted is not None:
                over(registry, entry.name, topic, WENT_BACK)
            seen[topic] = _Known(_highest(before.ends, found))
        elif before.doubted is None:
            seen[topic] = replace(before, doubted=flushed)
            if flushed is not None:
                wait = "whether the connector tells them again shows when it has gone on"
                verdict = Verdict(State.CATCHING_UP, f"{_said(topic, partition, before, found)}; {wait}")
                record(registry, entry, [topic], WENT_BACK, verdict)
        elif told >= before.doubted:
            verdict = Verdict(
                State.RESYNC_REQUIRED, _said(topic, partition, before, found), recover(entry.name)
            )
            worsen(registry, entry.name, topic, WENT_BACK, State.CATCHING_UP, verdict)
            seen[topic] = _Known(found)
    if news := {topic: one for topic, one in seen.items() if one != known.get(topic)}:
        with registry.begin() as session:
            if living(session, entry) is not None:
                for topic, one in news.items():
                    kept = {"ends": dict(one.ends), "doubted": one.doubted}
                    session.merge(EndEntry(source=entry.name, topic=topic, topic_id=ids[topic], **kept))


def _said(topic: str, partition: str, before: _Known, found: Mapping[str, int]) -> str:
    lost = f"Kafka has lost records of {topic}: partition {partition} ends at {found[partition]}"
    return f"{lost}, and was seen to end at {before.ends[partition]}"


def _told(kafka: Kafka, capture: Capture, entry: SourceEntry) -> int:
    """Return where the newest heartbeat stands in the database's log that the connector has told."""
    beats = newest_beat(entry.kind, kafka.tail(capture.topic(capture.heartbeat), NEWEST))
    return max((int(beat["source"].get("lsn") or 0) for beat in beats), default=0)


def _known(registry: Registry, source: str, ids: Mapping[str, str]) -> dict[str, _Known]:
    with registry.begin() as session:
        kept = session.scalars(select(EndEntry).where(EndEntry.source == source)).all()
    return {one.topic: _Known(one.ends, one.doubted) for one in kept if ids.get(one.topic) == one.topic_id}


def _ends(kafka: Kafka, topics: Sequence[str]) -> _Ends:
    told: _Ends = {}
    for (topic, partition), (_, end) in kafka.ends(topics).items():
        told.setdefault(topic, {})[str(partition)] = end
    return told


def _lower(seen: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Return a partition that ends below where it was seen to end; empty when none does."""
    return next((partition for partition, end in now.items() if end < seen.get(partition, 0)), "")


def _highest(seen: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {partition: max(end, seen.get(partition, 0)) for partition, end in now.items()}
