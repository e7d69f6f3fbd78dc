"""Partitions that were emptied: what the connector has told of it is read from Kafka.

TRUNCATE of a table is told, TRUNCATE of its partitions is not, and both look the same in the catalogue. What
is told may be on its way still. So a table is in doubt until the connector has confirmed all that was in the
log at that look. A verdict stands meanwhile, so that a run which begins then heals it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from connectors.watch import Sight, Trouble
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry
from headrace.control.remedies import read_anew
from headrace.control.verdicts import State, Verdict, over, reword, standing
from headrace.model.errors import StackError

__all__ = ["Doubt", "Emptied", "doubtful", "ends_now", "in_doubt", "judged"]

_CODE = "PARTITION_EMPTIED"
_TRUNCATE = b'"op":"t"'
"""In a record of a truncate, and in no other: quotes within values are escaped."""
_IN_DOUBT = State.CATCHING_UP
_IDS = 1 << 32
"""The catalogue's numbers of transactions begin anew after so many."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A table of which partitions were emptied.

    Args:
        since: Where its topic ended, by partition, before that happened.
        position: Where the log was when it was seen.
        by: The first and the last transaction that may have done it, of each partition; equal ones once.
        reason: What is wrong when none of them is told.
    """

    since: Sequence[int]
    position: int
    by: Sequence[Sequence[int]]
    reason: str


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
        doubts = {topic: Doubt(**told) for topic, told in kept.get("doubts", {}).items()}
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
    """Return what is in doubt after a look; a table that stands as emptied already is not."""
    topics = {table.schema.table: table.topic for table in entry.tables}
    stand = {one.topic: State(one.state) for one in standing(registry, entry.name) if one.code == _CODE}
    # Where no verdict stands any more a run has read the table since.
    captured = before.doubts.keys() & topics.values()
    doubts = {topic: before.doubts[topic] for topic in captured if stand.get(topic) is _IN_DOUBT}
    for trouble in sight.troubles:
        topic = topics.get(trouble.table)
        if trouble.unless is None or topic is None or stand.get(topic) is State.RESYNC_REQUIRED:
            continue
        position, by = sight.hold.flushed or 0, list(trouble.unless)
        known = doubts.get(topic) or Doubt(before.ends.get(topic, ()), position, (), trouble.reason)
        doubts[topic] = replace(known, position=position, by=[*(one for one in known.by if one != by), by])
    return doubts


def doubtful(trouble: Trouble) -> Verdict:
    """Return the verdict that stands while something is in doubt."""
    said = "or with the whole table, which shows when the connector has confirmed what it has told"
    return Verdict(_IN_DOUBT, f"{trouble.reason}, {said}")


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
    left = dict(doubts)
    for topic, doubt in doubts.items():
        if doubt != before.doubts.get(topic) or (sight.hold.confirmed or 0) < doubt.position:
            continue
        try:
            told = _truncates(kafka, topic, doubt.since)
        except StackError:
            continue
        if all(any(_within(one, first, last) for one in told) for first, last in doubt.by):
            over(registry, entry.name, topic, _CODE)
        else:
            remedy = read_anew(entry, [schemas[topic]])
            reword(registry, entry.name, topic, _CODE, Verdict(State.RESYNC_REQUIRED, doubt.reason, remedy))
        del left[topic]
    return left


def _truncates(kafka: Kafka, topic: str, since: Sequence[int]) -> list[int]:
    """Return the transactions of truncates that a topic tells of from some offsets on."""
    found: list[int] = []
    for (_, partition), (low, high) in kafka.ends([topic]).items():
        start = since[partition] if partition < len(since) else low
        for message in kafka.records(topic, partition, max(low, start if start <= high else low), high):
            value = message.value() or b""
            if _TRUNCATE in value:
                found.append(int(json.loads(value)["source"]["txId"]))
    return found


def _within(transaction: int, first: int, last: int) -> bool:
    """Return whether a transaction is one from ``first`` to ``last``, by numbers that begin anew."""
    return (transaction - first) % _IDS <= (last - first) % _IDS
