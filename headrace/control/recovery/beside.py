"""A table that a recovery has left out and that no run can read: another target is filled from its topic.

The topic is of the new life, so it tells of every row. A run fills a target beside the one that refuses and
puts it in its place; what it would have the connector read it finds there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from connectors.registry import why_unreadable
from headrace.control.entries import ResnapshotEntry
from headrace.control.kafka import Kafka
from headrace.control.recovery.job import Job
from headrace.control.recovery.left_out import LeftOut
from headrace.control.registry import SourceTableEntry
from headrace.control.runs.repository import Phase, active, change, insert, topics_of
from headrace.control.runs.start import MAX_LATENCY_MS, hand_over, marks_of

__all__ = ["Beside"]

_WHY = "the recovery has left them out"


class Beside:
    """Runs that fill targets beside those that refuse, one for each sink.

    None works before :meth:`begin`, and none heals what is told before :meth:`date`.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._runs: list[ResnapshotEntry] = []

    def of(self, left: Sequence[LeftOut]) -> list[LeftOut]:
        """Note a run for what no other can read; return all of it, with the command that waits for that."""
        job = self._job
        tables = {str(table.schema.table): table for table in job.source.tables}
        mine: dict[str, list[SourceTableEntry]] = {}
        for one in left:
            if _is_for_us(job, tables[one.table]):
                mine.setdefault(one.sink, []).append(tables[one.table])
        told = list(left)
        for sink, chosen in mine.items():
            run = _note(job, sink, chosen)
            self._runs.append(run)
            names = {str(table.schema.table) for table in chosen}
            told = [
                replace(one, remedy=f"headrace resnapshot wait {run.id}")
                if one.sink == sink and one.table in names
                else one
                for one in told
            ]
        return told

    def date(self) -> None:
        """Date the runs after all that was told until now."""
        for run in self._runs:
            change(self._job.registry, run.id, begun_ms=self._job.registry.moment(self._job.name))

    def begin(self) -> None:
        """Have the runs begin."""
        for run in self._runs:
            hand_over(self._job.context, run)


def _is_for_us(job: Job, table: SourceTableEntry) -> bool:
    if not why_unreadable(job.source.kind, table.schema):
        return False
    # A topic that has lost its first records tells of every row no more.
    return not any(low for low, _ in Kafka(job.context.kafka_bootstrap).ends([table.topic]).values())


def _note(job: Job, sink: str, tables: Sequence[SourceTableEntry]) -> ResnapshotEntry:
    """Note a run that has read the tables, as far as anybody knows."""
    kafka, source = Kafka(job.context.kafka_bootstrap), job.source
    topics = [table.topic for table in tables]
    ends = {table.topic: marks_of(kafka, source, table) for table in tables}
    # A command that died when it had noted them has left some.
    noted = [run for run in active(job.registry, job.name) if (run.why, run.plan["sinks"]) == (_WHY, [sink])]
    known = next((run for run in noted if topics_of(run) == set(topics)), None)
    run = known or insert(
        job.registry,
        job.name,
        topics,
        [sink],
        queue=True,
        why=_WHY,
        sweep_many=False,
        rows_per_second=None,
        max_latency_ms=MAX_LATENCY_MS,
        estimate=0,
        whole=False,
        left_out={},
    )
    plan = {
        "marks": {topic: [0] * len(of) for topic, of in ends.items()},
        "ends": ends,
        "shadows": {sink: topics},
        "asked": True,
    }
    return change(job.registry, run.id, plan, phase=Phase.APPLYING)
