"""What a sink has still to apply of what a run has read, table by table, and what keeps it from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.control.progress import SinkProgress
from headrace.control.registry import ResnapshotEntry, SourceTableEntry

__all__ = ["Lack", "lack_of", "worded"]


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
