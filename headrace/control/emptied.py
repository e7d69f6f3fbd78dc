"""Partitions that were emptied: what the connector has told of it is read from Kafka.

TRUNCATE of a table is told, TRUNCATE of its partitions is not, and both look the same in the catalogue. What
is told may be on its way still. So a table is in doubt until the connector has confirmed all that was in the
log at that look. A verdict stands meanwhile, so that a run which begins then heals it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from connectors.watch import Sight, Trouble
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry, VerdictEntry
from headrace.control.remedies import read_anew
from headrace.control.truncates import Told, Truncates
from headrace.control.verdicts import (
    EMPTIED,
    EVERY_SINK,
    State,
    Verdict,
    over,
    record,
    seen_again,
    standing,
    worsen,
)
from headrace.model.errors import StackError

__all__ = ["UNREAD", "Doubt", "Emptied", "ends_now", "held", "in_doubt", "judged", "note_doubt"]

UNREAD = "PARTITION_UNREAD"
"""Code of a table of which it is not known yet whether partitions have lost rows, or brought some."""

_IN_DOUBT = State.CATCHING_UP
_READS_S = 2.0
"""A look reads what was told for so long; the next one goes on."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A table of which partitions were emptied.

    Args:
        since: Up to where its topic was read, by partition; first where it ended before that happened.
        position: Where the log was when it was seen; None when that was not known.
        by: The first and the last transaction that may have done it, of each partition; equal ones once.
        reason: What is wrong when none of them is told.
        until: Where the topic ended when the connector had confirmed all; None before.
        told: What was read so far.
    """

    since: Sequence[int]
    position: int | None
    by: Sequence[Sequence[int]]
    reason: str
    until: Sequence[int] | None = None
    told: Told = field(default_factory=Told)


@dataclass(frozen=True, slots=True)
class Emptied:
    """What is kept from look to look.

    Args:
        ends: Topic → where it ended before the look, by partition, of tables that have partitions.
        doubts: Topic → what is in doubt.
    """

    ends: Mapping[str, Sequence[int]] = field(default_factory=dict)
    doubts: Mapping[str, Doubt] = field(default_factory=dict)

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Emptied:
        """Read what :meth:`as_dict` returned, or nothing."""
        doubts = {
            topic: Doubt(**{**doubt, "told": Told.of(doubt.get("told", ()))})
            for topic, doubt in kept.get("doubts", {}).items()
        }
        return cls(kept.get("ends", {}), doubts)

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return asdict(self)


def ends_now(kafka: Kafka, before: Emptied) -> Mapping[str, Sequence[int]]:
    """Return where the topics end, of tables that had partitions at the look before.

    To be asked before a look: what is emptied after it is told behind these ends.
    """
    try:
        ends = kafka.ends(list(before.ends)) if before.ends else {}
    except StackError:
        return before.ends
    return {topic: [ends[place][1] for place in sorted(ends) if place[0] == topic] for topic in before.ends}


def in_doubt(registry: Registry, entry: SourceEntry, before: Emptied, sight: Sight) -> dict[str, Doubt]:
    """Return what is in doubt after a look; a table that stands as emptied already, at every sink, is not."""
    topics = {table.schema.table: table.topic for table in entry.tables}
    wrong, stand = _wrong(registry, entry), {topic for topic, _ in _doubted(registry, entry)}
    # Where no verdict stands any more a run has read the table since.
    captured = before.doubts.keys() & topics.values()
    doubts = {topic: before.doubts[topic] for topic in captured if topic in stand}
    for trouble in sight.troubles:
        topic = topics.get(trouble.table)
        if trouble.unless is None or topic is None or wrong.get(topic) == set():
            continue
        position, by = sight.hold.flushed, list(trouble.unless)
        known = doubts.get(topic) or Doubt(before.ends.get(topic, ()), position, (), trouble.reason)
        every = [*(one for one in known.by if one != by), by]
        doubts[topic] = replace(known, position=position, by=every, until=None)
    return doubts


def note_doubt(registry: Registry, entry: SourceEntry, topic: str, trouble: Trouble) -> None:
    """Note that a table is in doubt, at each sink at which it does not stand as emptied already.

    Where some are healed it is noted of each of the others, too: a run that began before heals them of what
    stands, and may have read rows that are gone now.
    """
    said = "or with the whole table, which shows when the connector has confirmed what it has told"
    verdict = Verdict(_IN_DOUBT, f"{trouble.reason}, {said}")
    if topic not in _wrong(registry, entry):
        record(registry, entry, [topic], EMPTIED, verdict)
        return
    again = {one.sink for one in _lost(registry, entry) if one.topic == topic}
    for sink in (sink.name for sink in registry.sinks(entry.name) if topic in sink.tables):
        if sink in again:
            seen_again(registry, entry.name, topic, EMPTIED, sink=sink)
        else:
            record(registry, entry, [topic], EMPTIED, verdict, sink=sink)


def _wrong(registry: Registry, entry: SourceEntry) -> dict[str, set[str]]:
    """Return topic → sinks that a run has healed, of tables that stand as emptied upon every sink."""
    sinks = {sink.name for sink in registry.sinks(entry.name)}
    lost = _lost(registry, entry)
    again = {(one.topic, one.sink) for one in lost}
    return {
        one.topic: {name for name in sinks & one.healed.keys() if (one.topic, name) not in again}
        for one in lost
        if one.sink == EVERY_SINK
    }


def _lost(registry: Registry, entry: SourceEntry) -> list[VerdictEntry]:
    """Return what stands as emptied, and in no doubt."""
    found = standing(registry, entry.name)
    return [one for one in found if one.code == EMPTIED and one.state == State.RESYNC_REQUIRED.value]


def _doubted(registry: Registry, entry: SourceEntry) -> list[tuple[str, str]]:
    """Return topic and sink of what stands as in doubt."""
    found = standing(registry, entry.name)
    return [(one.topic, one.sink) for one in found if one.code == EMPTIED and one.state == _IN_DOUBT.value]


def judged(
    registry: Registry,
    kafka: Kafka,
    entry: SourceEntry,
    before: Emptied,
    doubts: Mapping[str, Doubt],
    sight: Sight,
) -> dict[str, Doubt]:
    """Judge what has been in doubt since an earlier look; return what still is."""
    schemas = {table.topic: table.schema for table in entry.tables}
    left, until_s = dict(doubts), time.monotonic() + _READS_S
    for topic, doubt in doubts.items():
        if doubt.position is None:  # a server that recovers does not tell it
            left[topic] = replace(doubt, position=sight.hold.flushed)
            continue
        if doubt != before.doubts.get(topic) or (sight.hold.confirmed or 0) < doubt.position:
            continue
        try:
            left[topic] = read = _read_on(kafka, topic, doubt, until_s)
        except StackError:
            continue
        if read.since != read.until:
            continue
        if all(read.told.did(first, last) for first, last in doubt.by):
            for sink in [sink for where, sink in _doubted(registry, entry) if where == topic]:
                over(registry, entry.name, topic, EMPTIED, sink=sink)
        else:
            verdict = Verdict(State.RESYNC_REQUIRED, doubt.reason, read_anew(entry, [schemas[topic]]))
            worsen(registry, entry.name, topic, EMPTIED, _IN_DOUBT, verdict)
        del left[topic]
    return left


def _read_on(kafka: Kafka, topic: str, doubt: Doubt, until_s: float) -> Doubt:
    """Return a doubt with what more was read of its topic: up to a monotonic time, one record at least."""
    ends = [place for _, place in sorted(kafka.ends([topic]).items())]
    highs = [high for _, high in ends]
    since, told = list[int](), Truncates(doubt.told, {last for _, last in doubt.by})
    for partition, (low, high) in enumerate(ends):
        start = doubt.since[partition] if partition < len(doubt.since) else low
        since.append(max(low, start if start <= high else low))
    until = highs
    if doubt.until is not None and len(doubt.until) == len(highs):
        until = [min(known, high) for known, high in zip(doubt.until, highs, strict=True)]
    for partition, end in enumerate(until):
        for message in kafka.records(topic, partition, since[partition], end):
            told.read(message.value() or b"")
            since[partition] = (message.offset() or 0) + 1
            if time.monotonic() >= until_s and since[partition] < end:
                return replace(doubt, since=since, until=until, told=told.told)
        since[partition] = end
    return replace(doubt, since=since, until=until, told=told.told)


def held(
    entry: SourceEntry,
    before: Emptied,
    ends: Mapping[str, Sequence[int]],
    doubts: Mapping[str, Doubt],
    sight: Sight,
) -> Emptied:
    """Return what the next look needs, given where the topics ended before this one.

    What is found out later about a partition happened before an earlier look, and was told from there on.
    """
    asking = {trouble.table for trouble in sight.troubles if trouble.code == UNREAD}
    told_from = {
        table.topic: (table.schema.table in asking and before.ends.get(table.topic))
        or ends.get(table.topic, ())
        for table in entry.tables
        if table.schema.table in sight.parted
    }
    return Emptied(told_from, doubts)
