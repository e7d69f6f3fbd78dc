"""A sink's query: batches out of the topic, and what of them outlives a driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from connectors.debezium import Decoder
from headrace.model.change import Change, Origin, Record
from sinks.base import Sink
from spark_jobs.apply import Pause, apply_records
from spark_jobs.carry import Carry, NoCarry
from spark_jobs.held import load_holds, save_holds
from spark_jobs.report import Report
from spark_jobs.tables import Tables
from tests.property.simulation.kafka import PLACEHOLDER, TOPIC, Connector
from tests.property.simulation.source import SCHEMA, TABLE
from tests.property.simulation.store import Died

__all__ = ["SEAMS", "Batch", "Query"]

SEAMS = ("planned", "applied", "held", "quarantined", "settled")
"""Between which steps of a batch a driver may die, beside the store's calls."""

_ROWS_AT_ONCE = (1, 5_000, 2, 5_000, 3)
"""After how many rows a batch is cut, by its number."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records ``start`` up to ``end``, under the number that Spark gives them; the same whenever it runs."""

    number: int
    start: int
    end: int


@dataclass
class Query:
    """What is durable of one query, and the steps of a batch as the engine takes them.

    Args:
        connector: Where records come from.
        epoch: Of the topic.
        checkpoint: Folder of what a batch leaves to the next.

    Attributes:
        planned: The batch that has begun and is not settled.
        settled: The next batch begins here.
        promised: Up to here the sink was told that everything is settled, at one time or another.
        noted: What was noted last beside the data, and by which driver's sink.
        letters: Offsets of what was set aside.
        refused: Offset of what the sink did not take → why at first.
    """

    connector: Connector
    epoch: int
    checkpoint: Path
    planned: Batch | None = None
    settled: int = 0
    promised: int = 0
    noted: tuple[Sink, dict[tuple[str, int], int]] | None = None
    letters: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    _next: int = 0

    def __post_init__(self) -> None:
        self.tables = Tables({TABLE: SCHEMA}, {TOPIC: (TABLE, self.epoch)})
        self._decoder = Decoder(SCHEMA, self.epoch, PLACEHOLDER)

    def record(self, offset: int) -> Record:
        """Return what a record of the topic says."""
        return self._decoder.decode_raw(Origin(TOPIC, 0, offset), *self.connector.records[offset])

    def plan(self, count: int) -> Batch:
        """Return the batch to run: that of before if a driver died in it, else the next one."""
        if self.planned is None:
            end = min(self.settled + count, len(self.connector.records))
            self.planned = Batch(self._next, self.settled, end)
            self._next += 1
        return self.planned

    def _paused(self, batch: Batch) -> Iterator[Record | Pause]:
        """Yield a batch's records; in every third batch something large stands behind every second one."""
        for offset in range(batch.start, batch.end):
            yield self.record(offset)
            if batch.number % 3 == 0 and offset % 2:
                yield Pause()

    def _carry(self, batch: Batch) -> Carry:
        return Carry(self.checkpoint / "halves", {(TOPIC, 0): batch.start})

    def apply(self, batch: Batch, sink: Sink) -> Report:
        """Look at the store and apply a batch, again as long as the store asks for patience."""
        while True:
            sink.progress([(TOPIC, 0)])
            carry = self._carry(batch)
            report = apply_records(
                self._paused(batch),
                sink,
                self.tables,
                carry,
                load_holds(self.checkpoint),
                rows_at_once=_ROWS_AT_ONCE[batch.number % len(_ROWS_AT_ONCE)],
                tables_at_once=1,  # a program that fails has to fail again
            )
            for reject in report.rejects:
                self.refused.setdefault(reject["offset"], reject["code"])
            if report.error is None:
                return report
            assert report.error["code"] == "STORE_DOWN", report.error

    def run(self, batch: Batch, sink: Sink, death: str | None = None) -> None:
        """Run a batch to its end or, if ``death`` says so, only up to one of its seams.

        Raises:
            Died: Where it was to die.
        """
        self._pass("planned", death)
        report = self.apply(batch, sink)
        self._pass("applied", death)
        report.holds.add(load_holds(self.checkpoint))
        save_holds(self.checkpoint, report.holds)
        self._pass("held", death)
        self.letters |= {reject["offset"] for reject in report.rejects}
        self._pass("quarantined", death)
        self.note_progress(batch, sink)
        self.promised = max(self.promised, batch.end)
        self._pass("settled", death)
        self._carry(batch).discard(report.spent)
        self.settled, self.planned = batch.end, None

    def note_progress(self, batch: Batch, sink: Sink) -> None:
        """Note beside the data how far everything is settled; a driver that slept notes what is past."""
        if batch.end:
            progress = {(TOPIC, 0): batch.end - 1}
            sink.settle(progress)
            self.noted = sink, progress

    def replay(self, sink: Sink) -> None:
        """Apply the letters again that rows still lack."""
        holds = load_holds(self.checkpoint)
        chosen = [
            record
            for record in map(self.record, sorted(self.letters))
            if isinstance(record, Change)
            and record.position.version in holds.missing(str(TABLE), record.key.id)
        ]
        report = apply_records(chosen, sink, self.tables, NoCarry(), holds)
        assert report.error is None, report.error
        save_holds(self.checkpoint, report.holds)

    def behind(self) -> dict[str, list[int]]:
        """Return the rows that are known to be behind, with the versions they lack."""
        return load_holds(self.checkpoint).held.get(str(TABLE), {})

    @staticmethod
    def _pass(seam: str, death: str | None) -> None:
        if seam == death:
            raise Died
