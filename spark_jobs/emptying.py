"""A truncate empties every partition of its topic, though its record stands in one of them only.

In its own partition it is in the order of the records. Where it belongs in the others, the source's log
tells: a truncate excludes all other writers, so what was changed before it has a smaller LSN, what was
changed after it a larger one, whatever holds between other transactions. A partition that is behind is
emptied bit by bit, as its records are applied, until one is met that was sent so long after the truncate
that nothing of before it can follow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from headrace.config.pipeline import PipelineSpec, TableSpec, write_private
from headrace.model.errors import SinkError
from headrace.model.position import Position
from sinks.base import Sink
from spark_jobs.held import Holds
from spark_jobs.peek import KafkaPeek, Mark, Peek
from spark_jobs.report import Report

__all__ = ["Emptying", "Emptyings", "Unplaced", "cut"]

_SLACK_MS = 60_000
"""What is sent so much later was changed later: a transaction of the connector's takes less."""

_STEP = 2_000
_MOST = 50_000
"""So many records are looked at at once: few at first, for most often the last ones tell."""


class Unplaced(Exception):
    """Kafka no longer tells which rows of a partition a truncate removed."""


@dataclass(frozen=True, slots=True)
class Emptying:
    """A truncate that may still find rows in some partitions.

    Args:
        topic: Of the table.
        lsn: Of the truncate.
        at_ms: When its record was sent, Unix milliseconds.
        open: Partitions in which older records may still follow.
    """

    topic: str
    lsn: int
    at_ms: int
    open: tuple[int, ...]

    def below(self, marks: Sequence[Mark], following: int | None) -> tuple[int | None, bool]:
        """Return the offset below which some records of another partition are older; None when none is.

        A row that a snapshot read has no LSN: it is later than the changes before it, and else as old as its
        record.

        Args:
            marks: The records, in order.
            following: The same of the records after them.

        Returns:
            Also whether a change is among them that is older: what stands before makes no difference then.
        """
        changed = [n for n, mark in enumerate(marks) if mark.lsn is not None and mark.lsn < self.lsn]
        end = begin = changed[-1] + 1 if changed else 0
        while end < len(marks) and marks[end].lsn is None and marks[end].at_ms <= self.at_ms:
            end += 1
        if end == len(marks) and following is not None:
            return following, bool(changed)
        return marks[end - 1].offset + 1 if end else None, bool(begin)


def cut(peek: Peek, emptying: Emptying, partition: int, end: int) -> tuple[int, bool]:
    """Return the offset below which a partition holds only what the truncate removes; and whether for good.

    Args:
        peek: Tells what stands in the topic.
        emptying: The truncate.
        partition: One that does not hold its record.
        end: The partition is applied up to here, exclusive.

    Raises:
        Unplaced: When Kafka has lost what it would have to tell.
    """
    topic = emptying.topic
    later = peek.first_since(topic, partition, emptying.at_ms + _SLACK_MS)
    limit = end if later is None else min(end, later)
    done = later is not None and end >= later
    first = peek.beginning(topic, partition)
    # Read backwards, to the last change that is older. Of what has been read, only this counts: up to where
    # the rows that a snapshot read go on which it begins with, for they are as old as what stands before.
    below: int | None = None
    anything = False
    step, upto = _STEP, limit
    while upto > first:
        begin = max(first, upto - step)
        marks = peek.marks(topic, partition, begin, upto)
        anything = anything or bool(marks)
        below, anchored = emptying.below(marks, below)
        if anchored and below is not None:
            return below, done
        step, upto = min(2 * step, _MOST), begin
    if below is not None:
        return below, done
    if anything and first:
        raise Unplaced
    return min(first, end), done


class Emptyings:
    """The truncates of one sink's topics that are not done with; a small file beside the checkpoint.

    Args:
        spec: The sink's pipeline.
        peek: Tells what stands in its topics; Kafka itself unless given.
    """

    def __init__(self, spec: PipelineSpec, peek: Peek | None = None) -> None:
        self._spec = spec
        self._tables: Mapping[str, TableSpec] = {t.topic: t for t in spec.tables if t.partitions > 1}
        self._file = spec.checkpoint / "emptying.json"
        self._given = peek

    @cached_property
    def _peek(self) -> Peek:
        return self._given or KafkaPeek(self._spec.kafka_bootstrap, f"headrace-{self._spec.sink}-peek")

    def empty(
        self, sink: Sink, report: Report, begins: _Ends, ends: _Ends, unplaced: _Unplaced
    ) -> dict[str, dict[str, Any]]:
        """Remove what truncates of this batch, or of earlier ones, remove from partitions applied meanwhile.

        Called when the batch's records are applied and before anything is settled; what it notes is durable
        when it returns. Done twice it is as done once.

        Args:
            sink: Where from.
            report: Of the batch; told what was emptied.
            begins: Last offset, inclusive, of each partition before the batch.
            ends: The same after it.
            unplaced: Told the topic and partition of a truncate that is given up there, for Kafka no longer
                tells which rows it removed.

        Returns:
            Table → error, for those whose target refused; of them nothing may be settled.

        Raises:
            SourceError: When Kafka does not answer.
        """
        refused: dict[str, dict[str, Any]] = {}
        if not self._tables:
            return refused
        fresh = [
            self._of(unplaced, **truncate)
            for truncate in report.truncates
            if truncate["topic"] in self._tables
        ]
        known = self._load()
        if not fresh and not known:
            return refused
        moved = {place for place, end in ends.items() if end > begins.get(place, -1)}
        left: list[Emptying] = []
        for one, places in [*((one, moved) for one in known), *((one, None) for one in fresh)]:
            try:
                now = self._emptied(sink, one, places, ends, report.holds, unplaced)
            except SinkError as error:
                if error.table is None:
                    raise
                refused[str(self._tables[one.topic].schema_.table)] = {
                    **error.as_dict(),
                    "retry": error.retry.value,
                }
                # A fresh one is met again when its record is applied again.
                left += [one] if places is not None else []
            else:
                if places is None:
                    # Whatever an earlier one may still find, this one finds as well.
                    left = [it for it in left if it.topic != now.topic or it.lsn > now.lsn]
                left.append(now)
        self._save([one for one in left if one.open])
        return refused

    def _emptied(
        self,
        sink: Sink,
        one: Emptying,
        moved: Iterable[tuple[str, int]] | None,
        ends: _Ends,
        holds: Holds,
        unplaced: _Unplaced,
    ) -> Emptying:
        """Return what is left of a truncate; only partitions that have moved are looked at, or all."""
        table, still = self._tables[one.topic], []
        schema = table.schema_
        for partition in one.open:
            place = one.topic, partition
            if moved is not None and place not in moved:
                still.append(partition)
                continue
            try:
                below, done = cut(self._peek, one, partition, ends.get(place, -1) + 1)
            except Unplaced:
                unplaced(*place)
                continue
            position = Position(table.epoch, below, partition)
            sink.truncate(schema, position)
            holds.empty(str(schema.table), position)
            if not done:
                still.append(partition)
        return replace(one, open=tuple(still))

    def _of(self, unplaced: _Unplaced, topic: str, partition: int, offset: int, lsn: int | None) -> Emptying:
        found = self._peek.marks(topic, partition, offset, offset + 1)
        others = tuple(number for number in range(self._tables[topic].partitions) if number != partition)
        if found:
            return Emptying(topic, lsn or 0, found[0].at_ms, others)
        for number in others:
            unplaced(topic, number)
        return Emptying(topic, lsn or 0, 0, ())

    def _load(self) -> list[Emptying]:
        try:
            told = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return []
        found = [Emptying(one["topic"], one["lsn"], one["at_ms"], tuple(one["open"])) for one in told]
        return [one for one in found if one.topic in self._tables]

    def _save(self, left: list[Emptying]) -> None:
        if left != self._load():
            write_private(self._file, json.dumps([asdict(one) for one in left]))


_Ends = Mapping[tuple[str, int], int]
_Unplaced = Callable[[str, int], None]
