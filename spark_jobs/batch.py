"""One micro-batch: read → decode → collapse → apply → settle; and a look at the store when none comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import HeadraceError, SinkError, SinkUnavailable, SinkWentBack
from headrace.model.position import Position
from headrace.observe.failpoints import hit
from sinks.base import Place, Sink
from spark_jobs.apply import carry_of, sink_of
from spark_jobs.emptying import Emptyings
from spark_jobs.held import forget_earlier, load_holds
from spark_jobs.history import History
from spark_jobs.lives import remove_earlier
from spark_jobs.offsets import Ranges, Settled, Span, parts, planned, repartitioned, settled_last
from spark_jobs.ownership import Holding
from spark_jobs.progress import Progress, now_ms
from spark_jobs.ranges import Applier, Ended, patiently
from spark_jobs.reader import Reader
from spark_jobs.report import Report
from spark_jobs.requested import Requested
from spark_jobs.rest import rest_after
from spark_jobs.rewind import lost, sweep_again
from spark_jobs.settle import set_aside_again, settle
from spark_jobs.tables import Tables
from spark_jobs.targets import Targets
from spark_jobs.troubles import Troubles

__all__ = ["Batches"]

_LOOK_EVERY_S = 1.0
"""What a store has lost is told as soon as that, and what proves that it has lost nothing is no older."""
_TIDY_EVERY_S = 5.0
_TIDY_BUSY_EVERY_S = 60.0
_TIDY_S = 0.2
"""So long may a change that comes in have to wait for it."""


class Batches:
    """What Spark calls for every micro-batch of one sink's query.

    ``turn`` is held meanwhile: nobody else of this process writes to the sink; ``holding`` sees to it that
    no other process does.

    Attributes:
        proven: When the store was seen to be as it was left, by the monotonic clock; 0 after it was not.
    """

    def __init__(
        self, spec: PipelineSpec, progress: Progress, turn: threading.Lock, holding: Holding
    ) -> None:
        self._spec = spec
        self._progress = progress
        self._turn = turn
        self._holding = holding
        self._names = {table.topic: str(table.schema_.table) for table in spec.tables}
        self._troubles = Troubles(spec)
        self._history = History(spec)
        self._targets = Targets(spec)
        self._emptyings = Emptyings(spec)
        self._requested = Requested(spec)
        self._reader = Reader(spec.kafka_bootstrap, f"headrace-{spec.sink}")
        self._over = threading.Event()
        self._applier = Applier(spec, progress, self._reader, self._over)
        self._at_rest = self._tidied = float("-inf")
        self._doubtful = True
        self.proven = 0.0

    def run(self, kafka: DataFrame, batch_id: int) -> None:
        """Apply a batch of records as Spark's Kafka source describes them.

        It returns only when every record is applied, stale or in the dead letter queue, or waits because its
        table's target is in trouble. A store that asks for patience is asked again, with backoff, for as long
        as it takes; the state says so. A store that refuses for another reason ends the query with its error.
        """
        with self._said():
            self._run(kafka.sparkSession, batch_id)

    @property
    def look_is_due(self) -> bool:
        """Return whether the store was last seen so long ago that it should be looked at."""
        return time.monotonic() - self._at_rest > _LOOK_EVERY_S

    @property
    def over(self) -> bool:
        """Whether there are to be no more batches."""
        return self._over.is_set()

    @property
    def topics(self) -> list[str]:
        """Return the topics to read, without those that are gone."""
        return sorted(self._names.keys() - self._history.gone.keys())

    def lose_topics(self) -> bool:
        """See which topics are gone; return whether one more is, so that the others are to be read alone."""
        return self._history.lose_topics()

    def look(self, session: SparkSession) -> None:
        """See whether the store still has what was settled, apply some of it again if not, and tidy up.

        Raises:
            HeadraceError: When that cannot be done; the state says so.
        """
        if not self._turn.acquire(blocking=False):
            return
        more, began = False, time.monotonic()
        try:
            if self._over.is_set():
                return
            _, ended = settled_last(self._spec.checkpoint)
            settled = {place: end for place, end in ended.items() if place[0] in self._names}
            with self._said():
                pipeline = self._holding.pipeline()
                self._shut({**self._history.changed(settled), **self._history.gone})
                behind = self._forward(session, pipeline, settled)
                more = any(self._troubles.due(self._names[topic]) for topic in behind)
                self._tidy(_TIDY_EVERY_S)
            # Not only who applies records changes it: so does a run that has filled a table anew.
            self._progress.behind(load_holds(self._spec.checkpoint).counts())
            self.proven = began
            self._progress.write()
        except (SinkUnavailable, SinkWentBack) as error:
            self.proven = 0.0
            self._progress.state("degraded", error)
        finally:
            # What is left of a refill goes on at once; a batch that waits comes first.
            self._at_rest = float("-inf") if more else time.monotonic()
            self._turn.release()

    def _tidy(self, every_s: float) -> None:
        if time.monotonic() - self._tidied > every_s:
            sink_of(self._holding.pipeline())[0].maintain(_TIDY_S)
            self._tidied = time.monotonic()

    def requested(self, report: Report) -> None:
        """Take note of what a request has done; a table that a run has swept has no hole below its mark."""
        for table, floors in report.holds.emptied.items():
            self._troubles.swept(table, [Position.from_version(version) for version in floors.values()])
        self._progress.request(report)

    def started(self) -> None:
        """Say that the query begins, again: what was seen before proves nothing now."""
        self.proven = 0.0
        self._at_rest = float("-inf")
        self._doubtful = True
        self._history.forget_former()
        self._history.doubt()
        forget_earlier(self._spec)

    def close(self) -> None:
        """Say that there will be no more batches; what is under way ends by itself."""
        self._over.set()
        if self._turn.acquire(blocking=False):
            try:
                self._reader.close()
            finally:
                self._turn.release()

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except (SinkUnavailable, SinkWentBack):
            raise
        except HeadraceError as error:
            self.proven = 0.0
            self._holding.give_up()
            # Said here, for on its way through Spark it becomes the text of a stack trace.
            self._progress.state("failed", error)
            raise

    def _run(self, session: SparkSession, batch_id: int) -> None:
        started = time.monotonic()
        # A table may have been taken out of the pipeline since the batch was planned.
        span = planned(self._spec.checkpoint, batch_id).of(self._names)
        hit("batch.planned", self._spec.kind)
        with self._turn:
            try:
                # A store that went back meanwhile is looked at: what it lacks comes before this batch, again.
                attempt = partial(self._attempt, session, span, batch_id)
                pace = patiently(attempt, self._progress, self._over, SinkWentBack)
                with suppress(SinkUnavailable, SinkWentBack):
                    self._tidy(_TIDY_BUSY_EVERY_S)
            finally:
                if self._over.is_set():
                    self._reader.close()
        self._over.wait(rest_after(span.records, time.monotonic() - started, pace))

    def _attempt(self, session: SparkSession, span: Span, batch_id: int) -> float:
        """Apply a batch to the store as it is now; return the sink's pace."""
        started, progress = time.monotonic(), self._progress
        if self._over.is_set():  # another may be at the store by now, with another table to write
            raise Ended
        pipeline = patiently(self._holding.pipeline, progress, self._over)
        self._shut({**self._history.shortened(span), **self._history.gone})
        self._shut(repartitioned(self._spec.tables, span.partitions))
        if self._history.is_due:
            self._shut(self._history.changed(span.begins))
        # Before what the store lacks is looked for: nothing is to look at its progress after that.
        known = self._applier.begun(pipeline, span.ranges, span.begins) if self._doubtful else ()
        behind = patiently(lambda: self._forward(session, pipeline, span.begins), progress, self._over)
        pipeline = self._holding.pipeline()
        ranges: Ranges = {p: r for p, r in span.ranges.items() if p[0] not in behind}
        if self._doubtful:
            ranges = self._readable(ranges, known)
        report = self._applier.apply(session, pipeline, ranges)
        settled = self._settle(session, pipeline, report, ranges, span, behind, batch_id)
        progress.batch(batch_id, time.monotonic() - started, report, settled)
        self._doubtful = False
        self.proven = self._at_rest = started
        progress.state("running")
        return sink_of(pipeline)[0].pace_s

    def _settle(
        self,
        session: SparkSession,
        pipeline: str,
        report: Report,
        ranges: Ranges,
        span: Span,
        behind: Collection[str],
        batch_id: int,
    ) -> Settled:
        """Make a batch's end durable; return what was settled: nothing of tables that are behind."""
        sink = sink_of(pipeline)[0]
        ends = {place: end for place, end in span.ends.items() if place[0] not in behind}
        ends = patiently(lambda: self._emptied(sink, report, ranges, ends, ends), self._progress, self._over)
        end = partial(settle, self._spec, sink, batch_id, session, report, ends, self._hole)
        patiently(end, self._progress, self._over)  # done twice it is as done once
        carry_of(pipeline, {}).discard(report.spent)
        return ends

    def _emptied(
        self, sink: Sink, report: Report, ranges: Ranges, ends: Settled, applied: Settled
    ) -> Settled:
        """Remove what truncates and sweeps remove beyond the records; return the ends that may be settled.

        ``applied`` are the ends of every partition, also of those without records in this batch.
        """
        if report.truncates:
            self._progress.applying()
        ends = self._without(report, report.troubles, ends)
        moved = {place: span for place, span in ranges.items() if place in ends}
        begins = applied | {place: begin - 1 for place, (begin, _) in moved.items()}
        found = self._emptyings.empty(sink, report, begins, applied, self._unplaced)
        found |= sweep_again(self._spec, sink, report, moved)
        ends = self._without(report, found, ends)
        for topic in {topic for topic, _ in moved}.intersection(topic for topic, _ in ends):
            self._troubles.passed(self._names[topic])
        return ends

    def _without(
        self, report: Report, troubles: Mapping[str, Mapping[str, object]], ends: Settled
    ) -> Settled:
        """Take tables in trouble out of a report and of what is settled; they are tried again later."""
        if not troubles:
            return ends
        topics = {table: topic for topic, table in self._names.items() if table in troubles}
        for table, error in troubles.items():
            self._troubles.refused(table, error)
        report.leave_out(topics, load_holds(self._spec.checkpoint))
        self._tell()
        return {place: end for place, end in ends.items() if place[0] not in topics.values()}

    def _forward(self, session: SparkSession, pipeline: str, settled: Settled) -> set[str]:
        """Apply a part of what the store has lost of what was ``settled``; return the topics still behind.

        A table whose target refuses has lost what it refused, and is tried again here.
        """
        began = now_ms()
        sink, tables = sink_of(pipeline)
        settled = {p: end for p, end in settled.items() if not self._is_shut(p[0])}
        gone = self._lost(sink, settled)
        if gone:
            # Before anything is done about it: that takes its time.
            self._progress.stored(settled, gone, began)
            self._tell(gone)
            due = {place: span for place, span in gone.items() if self._troubles.due(self._names[place[0]])}
            if due:
                if any(begin == 0 for begin, _ in due.values()):
                    self._holding.give_up()  # who lost all rows may have lost claims, too
                self._again(session, self._holding.pipeline(), tables, due, settled)
                gone = self._lost(sink, settled)
        behind = {topic for topic, _ in gone} | {t for t in self._names if self._is_shut(t)}
        for topic in {topic for topic, _ in settled}.difference(topic for topic, _ in gone):
            self._troubles.passed(self._names[topic])  # nothing waits: the target has what it refused
        behind |= self._requested.again(sink_of(self._holding.pipeline())[0], behind, self._troubles)
        if refilled := self._targets.refilled(behind):
            self._targets.done(remove_earlier(sink_of(self._holding.pipeline())[0], self._spec, refilled))
        self._progress.stored(settled, gone, began)
        self._tell(gone)
        return behind

    def _again(
        self, session: SparkSession, pipeline: str, tables: Tables, due: Ranges, settled: Settled
    ) -> None:
        sink = sink_of(pipeline)[0]
        ready = self._made_ready(sink, tables, due, settled)
        due = self._readable(ready, ready)
        passed = {place: begin - 1 for place, (begin, _) in due.items() if begin > ready[place][0]}
        if passed:
            sink.settle(passed)
        part = next(
            parts({p: r for p, r in due.items() if r[0] < r[1]}, self._spec.max_offsets_per_trigger), {}
        )
        if not part:
            return
        before = load_holds(self._spec.checkpoint)
        report = self._applier.apply(session, pipeline, part)
        ends = {place: end - 1 for place, (_, end) in part.items()}
        # A truncate empties partitions that have nothing to be applied again as well.
        applied = settled | {place: begin - 1 for place, (begin, _) in due.items()} | ends
        ends = self._emptied(sink, report, part, ends, applied)
        # What a row lacked was settled, too: a backup of that time lacks it.
        marks = self._requested.applied(before, report.holds)
        set_aside_again(self._spec, session, report, self._hole)
        if ends or marks:
            sink.settle({**ends, **marks})
        carry_of(pipeline, {}).discard(report.spent)
        self._progress.request(report)

    def _lost(self, sink: Sink, settled: Settled) -> Ranges:
        """Return what the store lacks of what was settled; all of a target that is not the one it was."""
        anew = self._targets.lost(sink).intersection(topic for topic, _ in settled)
        # One look at both: a store that goes back between two would be found out by neither.
        stored = sink.progress([*settled, *self._requested.places])
        stored = {place: end for place, end in stored.items() if place[0] not in anew}
        if self._requested.look(stored):
            self._progress.behind(load_holds(self._spec.checkpoint).counts())
        return lost(stored, settled)

    def _made_ready(self, sink: Sink, tables: Tables, due: Ranges, settled: Settled) -> Ranges:
        """Give targets their shape, and make those anew of which nothing is left; return what may be read.

        One that was put back to an earlier state may lack columns that have come since.
        """
        refused: set[str] = set()
        anew = {topic for (topic, _), (begin, _) in due.items() if begin == 0}
        for topic in dict.fromkeys(topic for topic, _ in due):
            table, _ = tables.topics[topic]
            try:
                sink.prepare(tables.schemas[table])
            except SinkError as error:
                if error.table is None:
                    raise
                self._troubles.refused(str(table), {**error.as_dict(), "retry": error.retry.value})
                refused.add(topic)
        refused |= self._targets.back(sink, anew - refused)
        if ready := anew - refused:
            # What it says of the target that was there before is not true of this one.
            sink.forget(ready)
            self._targets.note(sink, ready)
            self._targets.refill(ready)
        return {place: span for place, span in due.items() if place[0] not in refused}

    def _readable(self, ranges: Ranges, known: Collection[Place]) -> Ranges:
        """Return what Kafka still has of some ranges; one that begins after what is needed has a hole."""
        kept: dict[Place, tuple[int, int]] = {}
        for place, first in self._history.firsts(ranges).items():
            begin, end = ranges[place]
            if first > begin and (place in known or self._spec.begins_late(*place, first)):
                self._hole(place[0], self._history.hole(place[0]), {place[1]: first})
            kept[place] = min(max(begin, first), end), end
        return kept

    def _shut(self, found: Mapping[str, HeadraceError]) -> None:
        for topic, error in found.items():
            self._troubles.shut(self._names[topic], error)
        if found:
            self._tell()

    def _hole(self, topic: str, error: HeadraceError, below: Mapping[int, int]) -> None:
        """Note what a table lacks for good, before anything is settled that would hide it."""
        self._troubles.hole(self._names[topic], error, below)
        self._tell()

    def _unplaced(self, topic: str, partition: int) -> None:
        first = self._history.firsts([(topic, partition)])[topic, partition]
        self._hole(topic, self._history.hole(topic), {partition: first})

    def _is_shut(self, topic: str) -> bool:
        """Return whether nothing of a topic may be applied, or can be: what waits is lacked by the store."""
        known = topic in self._names and topic not in self._history.missing
        return not known or self._troubles.is_shut(self._names[topic])

    def _tell(self, gone: Ranges | None = None) -> None:
        """Say which tables are in trouble, and which lack what they had."""
        lacking: dict[str, int] = {}
        for (topic, _), (begin, end) in (gone or {}).items():
            lacking[self._names[topic]] = lacking.get(self._names[topic], 0) + end - begin
        self._progress.troubles(self._troubles.told(), lacking)
