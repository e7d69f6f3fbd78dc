"""Where topics end: one that ends below where it was seen to end has lost records.

A sink that had applied them finds that by itself. One that had not, for it was paused, misses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select

from headrace.control.entries import EndEntry
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry, living
from headrace.control.remedies import recover
from headrace.control.verdicts import State, Verdict, record
from headrace.model.errors import StackError

__all__ = ["WENT_BACK", "read_ends"]

WENT_BACK = "KAFKA_WENT_BACK"
"""Code of the verdict upon a table of whose topic Kafka has lost records."""

_Ends = dict[str, dict[str, int]]


def read_ends(registry: Registry, kafka: Kafka, entry: SourceEntry) -> None:
    """Note the tables whose topics end below where an earlier look saw them end.

    Retention moves the first offset only, and a topic that was made anew has another identity. While Kafka
    does not answer what is known stays.
    """
    ids = {table.topic: table.topic_id for table in entry.tables}
    known = _known(registry, entry.name, ids)
    try:
        ends = _ends(kafka, list(ids))
        suspects = [topic for topic, seen in known.items() if _lower(seen, ends.get(topic, {}))]
        if suspects:
            # Read once more, and the identity after that: what was made anew meanwhile has another one.
            ends |= _ends(kafka, suspects)
            now = kafka.ids(suspects)
            suspects = [topic for topic in suspects if now.get(topic) == ids[topic]]
    except StackError:
        return
    lost = {topic: lower for topic in suspects if (lower := _lower(known[topic], ends.get(topic, {})))}
    for topic, partition in lost.items():
        said = f"Kafka has lost records of {topic}: partition {partition} ends at {ends[topic][partition]}"
        reason = f"{said}, and was seen to end at {known[topic][partition]}"
        verdict = Verdict(State.RESYNC_REQUIRED, reason, recover(entry.name))
        record(registry, entry, [topic], WENT_BACK, verdict)
    highest = {
        topic: seen if topic in lost else _highest(known.get(topic, {}), seen) for topic, seen in ends.items()
    }
    if news := {topic: seen for topic, seen in highest.items() if seen != known.get(topic)}:
        with registry.begin() as session:
            if living(session, entry) is not None:
                for topic, seen in news.items():
                    session.merge(EndEntry(source=entry.name, topic=topic, topic_id=ids[topic], ends=seen))


def _known(registry: Registry, source: str, ids: Mapping[str, str]) -> _Ends:
    with registry.reading() as session:
        kept = session.scalars(select(EndEntry).where(EndEntry.source == source)).all()
    return {one.topic: one.ends for one in kept if ids.get(one.topic) == one.topic_id}


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
