"""Where a topic begins to tell of living rows alone: a run has read what stands before anew, and swept it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from headrace.config.pipeline import Swept
from headrace.control.registry import Registry, ResnapshotEntry, SinkEntry, SourceTableEntry
from headrace.control.runs.repository import all_of

__all__ = ["passed_by", "reread", "swept_at", "swept_now"]

Passed = Mapping[str, tuple[list[int], list[int]]]
"""Topic → marks and ends of a run, by partition."""
_READ_WHOLE = ("applying", "sweeping", "unfinished", "completed")
"""Phases of a run that has read its tables whole."""


def reread(registry: Registry, source: str) -> Passed:
    """Return topic → marks and ends of its last resnapshot that was read whole.

    From the marks on the topic tells of every live row; before them, also of rows that are gone
    without a record of their end.
    """
    tables = registry.source(source).tables
    query = select(ResnapshotEntry).where(ResnapshotEntry.source == source)
    with registry.reading() as session:
        runs = session.scalars(query.order_by(ResnapshotEntry.begun_ms)).all()
    found: dict[str, tuple[list[int], list[int]]] = {}
    for run in runs:
        for topic, (marks, ends) in passed_by(run, tables).items():
            # What a run had shown before it was begun anew may be older than what another has shown since.
            if topic not in found or sum(marks) >= sum(found[topic][0]):
                found[topic] = (marks, ends)
    return found


def passed_by(run: ResnapshotEntry, tables: Iterable[SourceTableEntry]) -> Passed:
    """Return topic → marks and ends of what one run has read whole, also before it was begun anew.

    Args:
        run: The run.
        tables: Of its source.
    """
    before: dict[str, list[Any]] = run.plan.get("passed", {})
    passed = {topic: (_each(marks), _each(ends)) for topic, (marks, ends) in before.items()}
    names = {table.topic: str(table.schema.table) for table in tables}
    ends = run.plan.get("ends") or {}
    for topic, marks in run.plan["marks"].items():
        # One that was ended later may have swept, and healed, some of its tables.
        if topic in ends and (run.phase in _READ_WHOLE or _is_swept(run, names.get(topic, ""))):
            passed[topic] = (_each(marks), _each(ends[topic]))
    return passed


def swept_at(registry: Registry, entry: SinkEntry, tables: Sequence[SourceTableEntry]) -> dict[str, Swept]:
    """Return topic → the marks of the last run that this sink was swept after, at its beginning or later."""
    found: dict[str, Swept] = {}
    every = registry.source(entry.source).tables
    for run in all_of(registry, entry.source):  # the newest first
        told: dict[str, Any] = {**run.plan.get("swept", {}).get(entry.name, {})}
        if run.ended_ms is not None and run.ended_ms < entry.created_ms:
            # A new sink is swept with what an earlier run has read whole.
            told |= {
                topic: of for topic, of in passed_by(run, every).items() if topic not in entry.incomplete
            }
        told |= swept_now(run, entry.name, every)
        for table in tables:
            if table.topic in told:
                marks, ends = told[table.topic]
                found.setdefault(table.topic, Swept(marks=tuple(_each(marks)), ends=tuple(_each(ends))))
    return found


def swept_now(run: ResnapshotEntry, sink: str, tables: Iterable[SourceTableEntry]) -> dict[str, list[Any]]:
    """Return topic → marks and ends by which a sink was swept since a run has read its tables last."""
    ends = run.plan.get("ends") or {}
    done = run.counts.get("swept", {}).get(sink, {})
    return {
        table.topic: [run.plan["marks"][table.topic], ends[table.topic]]
        for table in tables
        if str(table.schema.table) in done and table.topic in ends
    }


def _each(told: int | list[int]) -> list[int]:
    """Return offsets by partition; one alone is of a topic that has one."""
    return [told] if isinstance(told, int) else told


def _is_swept(run: ResnapshotEntry, table: str) -> bool:
    """Return whether a run has swept a table at any sink."""
    return any(table in tables for tables in run.counts.get("swept", {}).values())
