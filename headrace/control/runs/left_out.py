"""Which tables a run reads, and which it leaves out by name: those that are not read anew, or not right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from connectors.base import Source
from connectors.registry import why_unreadable
from headrace.control.captured import captured_of
from headrace.control.fitness import KEY_CHANGED, unfit_now
from headrace.control.registry import ResnapshotEntry, SourceEntry, SourceTableEntry, VerdictEntry
from headrace.control.remedies import read_anew, recover
from headrace.control.runs.job import Job
from headrace.control.runs.repository import change, topics_of
from headrace.control.verdicts import EVERY_SINK
from headrace.model.errors import SourceError, named
from headrace.model.finding import Finding
from headrace.model.schema import TableId

__all__ = ["TablesUnread", "Why", "choose", "leave_out", "raise_left_out", "tell", "why_unfit"]

_SAYS = "; it was not read anew: "
_ALONE = ("RESNAPSHOT_UNREADABLE", "SOURCE_TABLE_MISSING", KEY_CHANGED)
"""What mends these takes the table out, or reads it."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why a run has left a table out.

    Args:
        reason: In words.
        mends: What mends that; empty when only time does.
        alone: Nothing else has to be done for the table then.
    """

    reason: str
    mends: str
    alone: bool


class TablesUnread(SourceError):
    """Some tables of a run were not read, or not right; it may go on with the others.

    Args:
        message: What is wrong, for a run that cannot.
        code: Stable name of it.
        hint: What to do then.
        tables: Which tables, and why; None: nothing explains it.
    """

    def __init__(self, message: str, *, code: str, hint: str, tables: Mapping[TableId, Why | None]) -> None:
        super().__init__(message, code=code, hint=hint)
        self.tables = tables


def choose(
    entry: SourceEntry, tables: Sequence[TableId], *, spare: bool = False
) -> tuple[list[SourceTableEntry], dict[str, Why]]:
    """Return the tables that a run is to read, and topic → why one is left out that cannot be read anew.

    Args:
        entry: The source.
        tables: Which; all when empty.
        spare: Those that cannot be read are left out, though they are named.

    Raises:
        UsageError: When one of them is not captured (``TABLE_NOT_CAPTURED``).
    """
    meant = captured_of(entry, tables)
    if tables and not spare:
        return meant, {}
    reasons = {table.topic: why_unreadable(entry.kind, table.schema) for table in meant}
    out = {topic: Why(why, recover(entry.name), alone=True) for topic, why in reasons.items() if why}
    rest = [table for table in meant if table.topic not in out]
    if not rest and not spare:
        return meant, {}  # the run itself says that none can be read, and what does
    return rest, out


def why_unfit(source: str, found: Finding) -> Why:
    """Return why a table is left out that would not be read right just now."""
    return Why(found.message, named(found.hint, source=source), alone=found.code in _ALONE)


def leave_out(job: Job, source: Source, unread: Mapping[TableId, Why | None]) -> bool:
    """Have the run go on without tables, named in its plan; return False when it cannot.

    What nothing explains may have been chance: such a table is asked for once more.
    """
    run, entry = job.run, job.source
    mine = {table.schema.table: table for table in job.tables(run) if table.schema.table in unread}
    unfit = unfit_now(job.registry, entry, source, list(mine.values()))
    known = run.plan.get("failed", [])
    out: dict[str, Why] = {}
    for table, captured in mine.items():
        why = why_unfit(entry.name, unfit[table]) if table in unfit else unread[table]
        if why is None and captured.topic in known:
            why = Why(f"{table} was not read whole.", read_anew(entry, [captured.schema]), alone=True)
        if why is not None:
            out[captured.topic] = why
    rest = sorted(topics_of(run) - out.keys())
    if not rest or not mine:
        return False
    words = {str(t): _words(entry, c, out[c.topic]) for t, c in mine.items() if c.topic in out}
    change(job.registry, job.name, {
        "topics": rest,
        "failed": known + [captured.topic for captured in mine.values() if captured.topic not in out],
        "left_out": run.plan.get("left_out", {}) | words,
        "again": {t: keys for t, keys in run.plan.get("again", {}).items() if t not in out},
        "shadows": {
            sink: [t for t in topics if t not in out] for sink, topics in run.plan.get("shadows", {}).items()
        },
    }, also=lambda session: tell(session, entry, out))  # fmt: skip
    return True


def _words(entry: SourceEntry, table: SourceTableEntry, why: Why) -> str:
    again = "" if why.alone else read_anew(entry, [table.schema])
    return f"{why.reason} {' -- then: '.join(filter(None, (why.mends, again)))}"


def tell(session: Session, entry: SourceEntry, left_out: Mapping[str, Why]) -> None:
    """Have what stands upon tables that a run has left out say so, and what mends it.

    It is noted together with that: nobody says it later for a process that dies in between.
    """
    query = select(VerdictEntry).where(VerdictEntry.source == entry.name, VerdictEntry.sink == EVERY_SINK)
    for found in session.scalars(query.where(VerdictEntry.topic.in_(list(left_out)))):
        why = left_out[found.topic]
        reason = found.reason.partition(_SAYS)[0] + _SAYS + why.reason
        if reason != found.reason:
            mends = why.mends if why.alone else " -- then: ".join(filter(None, (why.mends, found.remedy)))
            found.reason, found.remedy = reason, mends


def raise_left_out(entry: SourceEntry, run: ResnapshotEntry) -> None:
    """Raise when a run has left tables out.

    Raises:
        SourceError: With their names, and what reads them (``RESNAPSHOT_UNREADABLE``).
    """
    told: Mapping[str, str] = run.plan.get("left_out", {})
    if told:
        taken_out = f"source tables remove {entry.name} "
        left = [
            table.schema
            for table in entry.tables
            if taken_out not in told.get(str(table.schema.table), taken_out)
        ]
        reasons = "; ".join(f"{table}: {why}" for table, why in told.items())
        raise SourceError(
            f"Run {run.id} has left tables out. {reasons}",
            code="RESNAPSHOT_UNREADABLE",
            # What mends a table that is to be taken out stands beside its name.
            hint=read_anew(entry, left) if left else f"headrace resnapshot show {run.id}",
        )
