"""What a sink has still to apply of what a run has read, table by table, and what keeps it from that.

Whoever looks at a run reads this often, so no sink is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.control.context import Context
from headrace.control.progress import SinkProgress, read_progress
from headrace.control.registry import Registry, ResnapshotEntry, SourceTableEntry
from headrace.control.runs.repository import Phase, is_swept, topics_of

__all__ = ["Lack", "lack_of", "pipeline_of", "records_left", "shadow_of", "shadowed", "worded"]


@dataclass(frozen=True, slots=True)
class Lack:
    """What a sink lacks of one table.

    Args:
        table: The table's name.
        records: How many records are to be applied.
        why: What keeps the table from it; empty when it only takes its time.
    """

    table: str
    records: int
    why: str = ""


def lack_of(run: ResnapshotEntry, table: SourceTableEntry, progress: SinkProgress | None) -> Lack | None:
    """Return what is lacking by the progress of whoever fills the table's target; None when nothing is."""
    name = str(table.schema.table)
    settled = progress.next_offsets if progress is not None else {}
    ends = enumerate(run.plan["ends"][table.topic])
    behind = sum(max(0, end - settled.get((table.topic, partition), 0)) for partition, end in ends)
    if progress is None:
        return Lack(name, behind) if behind else None
    failed = progress.error if progress.state == "failed" else None
    if not behind and not failed:
        return None
    counters = progress.tables.get(name)
    trouble = failed or (counters.trouble if counters is not None else None)
    return Lack(name, behind, f"{trouble['message']} ({trouble['code']})" if trouble else "")


def worded(sink: str, lacks: Sequence[Lack]) -> list[str]:
    """Return what is waited for at a sink: each table that is kept from it by name, the others as one."""
    said: list[str] = []
    slow = [lack for lack in lacks if not lack.why]
    if slow:
        tables = slow[0].table if len(slow) == 1 else f"{len(slow)} tables"
        records = sum(lack.records for lack in slow)
        said.append(f"{sink}: {records:,} records of {tables} to apply before the sweep")
    for lack in lacks:
        if lack.why:
            to_do = f"{lack.records:,} records to apply before the sweep" if lack.records else "to be swept"
            said.append(f"{sink}: {lack.table}, {to_do}: {lack.why}")
    return said


def records_left(context: Context, run: ResnapshotEntry) -> int | None:
    """Return how many records all sinks of a run have still to apply; None unless it applies or sweeps."""
    if run.phase not in (Phase.APPLYING.value, Phase.SWEEPING.value) or not run.plan.get("ends"):
        return None
    registry, left, mine = Registry(context.registry), 0, topics_of(run) & run.plan["ends"].keys()
    tables = [table for table in registry.source(run.source).tables if table.topic in mine]
    for sink in registry.sinks(run.source):
        for table in tables if sink.name in run.plan["sinks"] else ():
            if table.topic not in sink.tables or is_swept(run, sink.name, table):
                continue
            writer = (
                pipeline_of(run, sink.name, table) if shadowed(run, sink.name, table.topic) else sink.name
            )
            lack = lack_of(run, table, read_progress(context.progress, writer))
            left += lack.records if lack is not None else 0
    return left


def shadowed(run: ResnapshotEntry, sink: str, topic: str) -> bool:
    """Return whether the run fills a shadow of the table at this sink."""
    return topic in run.plan.get("shadows", {}).get(sink, ())


def pipeline_of(run: ResnapshotEntry, sink: str, table: SourceTableEntry) -> str:
    """Return the name of the pipeline that fills the shadow."""
    return f"{sink}.{shadow_of(run, table)}"


def shadow_of(run: ResnapshotEntry, table: SourceTableEntry) -> str:
    """Return the name of the shadow among those of its target."""
    return f"r{run.id}t{table.place}"
