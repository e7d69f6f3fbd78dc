"""Runs in the registry: begun, looked up, changed. Every change is one transaction."""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from headrace.control.registry import (
    Registry,
    ResnapshotEntry,
    SinkEntry,
    SourceTableEntry,
    now_ms,
)
from headrace.control.remedies import read_anew
from headrace.control.verdicts import State, Verdict, record, standing
from headrace.model.errors import HeadraceError, SinkError, SourceError, UsageError, named

__all__ = [
    "ACTIVE",
    "FORMER",
    "OPEN",
    "OVER",
    "RESTING",
    "SWEEP_LARGE",
    "UNSWEPT",
    "Phase",
    "active",
    "again",
    "all_of",
    "change",
    "count",
    "end",
    "insert",
    "is_swept",
    "keep_telling",
    "leave_behind",
    "note_litter",
    "overtaken",
    "raised",
    "refuse_busy",
    "refuse_former",
    "run_of",
    "take_over",
    "topics_left",
    "topics_of",
]


class Phase(str, Enum):
    """How far a run is."""

    QUEUED = "queued"
    READING = "reading"
    APPLYING = "applying"
    SWEEPING = "sweeping"
    UNFINISHED = "unfinished"
    """Everything is read; a person has to say whether rows are to be removed."""
    COMPLETED = "completed"
    ABORTED = "aborted"
    FAILED = "failed"


ACTIVE = (Phase.QUEUED, Phase.READING, Phase.APPLYING, Phase.SWEEPING)
"""Phases in which a process works on the run, or is about to; a paused run keeps its phase."""
OPEN = (*ACTIVE, Phase.UNFINISHED)
RESTING = (Phase.UNFINISHED, Phase.FAILED)
"""Phases in which nobody works on the run, and a person may have it go on."""
OVER = "RESNAPSHOT_OVER"
"""Code of what is asked of a run that is over, or is to end."""
SWEEP_LARGE = "RESNAPSHOT_SWEEP_LARGE"
"""Code of the verdict upon a table of which a run would remove many rows, until a person has decided."""
UNSWEPT = "RESNAPSHOT_UNSWEPT"
"""Code of the verdict upon a table that a run has read, and which it has ended without sweeping."""
FORMER = "RESNAPSHOT_FORMER"
"""Code of a run that the source's recovery has ended."""
Also = Callable[[Session], object]
"""What is noted in the same transaction."""
_KINDS = {kind.__name__: kind for kind in (UsageError, SourceError, SinkError)}


def insert(
    registry: Registry,
    source: str,
    topics: Sequence[str],
    sinks: Sequence[str],
    *,
    queue: bool,
    why: str,
    also: Also = lambda _: None,
    **plan: Any,
) -> ResnapshotEntry:
    """Begin a run. What another run of the same tables left unfinished stays so until this one has read them.

    What ``also`` does is done in the same transaction.

    Raises:
        UsageError: When another run is at one of the tables and this one is not to wait for it
            (``RESNAPSHOT_TABLE_BUSY``). It is not at those that it has finished everywhere.
    """
    known = registry.source(source).tables, registry.sinks(source)
    run = ResnapshotEntry(
        id=uuid.uuid4().hex[:12],
        source=source,
        phase=Phase.QUEUED.value,
        begun_ms=registry.moment(source),
        asked_ms=now_ms(),
        plan={"topics": list(topics), "sinks": list(sinks), "marks": {}, **plan},
        who=_user(),
        why=why,
        wanted="",
        reason="",
        error=None,
        ended_ms=None,
        counts={},
    )
    with registry.begin() as session:
        if not queue:
            _refuse_busy(session, source, topics, *known)
        session.add(run)
        also(session)
    return run


def refuse_busy(registry: Registry, source: str, topics: Sequence[str]) -> None:
    """Refuse what :func:`insert` would refuse now (``RESNAPSHOT_TABLE_BUSY``)."""
    known = registry.source(source).tables, registry.sinks(source)
    with registry.reading() as session:
        _refuse_busy(session, source, topics, *known)


def _refuse_busy(
    session: Session,
    source: str,
    topics: Sequence[str],
    tables: Sequence[SourceTableEntry],
    sinks: Sequence[SinkEntry],
) -> None:
    for other in session.scalars(_among(source, ACTIVE)):
        if at := topics_left(other, tables, sinks) & set(topics):
            raise UsageError(
                f"Run {other.id} is at {', '.join(sorted(at))} already: {other.phase}.",
                code="RESNAPSHOT_TABLE_BUSY",
                hint=f"headrace resnapshot wait {other.id}",
            )


def overtaken(registry: Registry, run: ResnapshotEntry) -> list[ResnapshotEntry]:
    """Return the unfinished runs of before all of whose tables this one has read, for all of their sinks.

    A table that is captured no more, and a sink that is gone, has nothing left to be finished.
    """
    topics = {table.topic for table in registry.source(run.source).tables}
    sinks = {sink.name for sink in registry.sinks(run.source)}
    with registry.reading() as session:
        unfinished = list(session.scalars(_among(run.source, (Phase.UNFINISHED,))))
    return [
        other
        for other in unfinished
        if other.begun_ms < run.begun_ms
        and topics_of(other) & topics <= topics_of(run)
        and set(other.plan["sinks"]) & sinks <= set(run.plan["sinks"])
    ]


def take_over(registry: Registry, name: str, by: str) -> None:
    """End an unfinished run whose tables another one has read; one that goes on again is left alone."""
    with registry.begin() as session:
        run = session.get_one(ResnapshotEntry, name)
        if run.phase != Phase.UNFINISHED.value:
            return
        run.phase, run.ended_ms, run.error, run.wanted = Phase.ABORTED.value, now_ms(), None, ""
        run.reason = f"run {by} has read the same tables anew"
    keep_telling(registry, run)


def keep_telling(registry: Registry, run: ResnapshotEntry) -> None:
    """Name what finds again the rows that a run would have removed that is over."""
    entry = registry.source(run.source)
    tables = {table.topic: table.schema for table in entry.tables}
    for found in standing(registry, run.source):
        if found.code == SWEEP_LARGE and found.topic in topics_of(run) & tables.keys():
            remedy = read_anew(entry, [tables[found.topic]], sweep_many=True)
            verdict = Verdict(State(found.state), found.reason, remedy)
            record(registry, entry, [found.topic], found.code, verdict, sink=found.sink)


def topics_of(run: ResnapshotEntry) -> set[str]:
    """Return the topics of the run's tables; one of an older version tells them by its marks."""
    return set(run.plan.get("topics") or run.plan["marks"])


def topics_left(
    run: ResnapshotEntry, tables: Iterable[SourceTableEntry], sinks: Iterable[SinkEntry]
) -> set[str]:
    """Return the topics of the run's tables that it has not finished at every sink.

    Args:
        run: The run.
        tables: The source's tables.
        sinks: The source's sinks.
    """
    if not run.plan.get("ends"):
        return topics_of(run)
    mine = [sink for sink in sinks if sink.name in run.plan["sinks"]]
    return topics_of(run) & {
        table.topic
        for table in tables
        if any(table.topic in sink.tables and not is_swept(run, sink.name, table) for sink in mine)
    }


def is_swept(run: ResnapshotEntry, sink: str, table: SourceTableEntry) -> bool:
    """Return whether the run is over with the table at the sink."""
    return str(table.schema.table) in run.counts.get("swept", {}).get(sink, {})


def run_of(registry: Registry, name: str) -> ResnapshotEntry:
    """Return a run by its id, or by what its id begins with.

    Raises:
        UsageError: When there is none or several (``RESNAPSHOT_UNKNOWN``).
    """
    with registry.reading() as session:
        found = session.scalars(select(ResnapshotEntry).where(ResnapshotEntry.id.startswith(name))).all()
    if len(found) != 1 or not name:
        which = "no run" if not found else f"{len(found)} runs"
        raise UsageError(
            f"There is {which} “{name}”.", code="RESNAPSHOT_UNKNOWN", hint="headrace resnapshot list"
        )
    return found[0]


def all_of(registry: Registry, source: str | None = None) -> list[ResnapshotEntry]:
    """Return runs, the newest first."""
    query = select(ResnapshotEntry).order_by(ResnapshotEntry.begun_ms.desc())
    with registry.reading() as session:
        return list(
            session.scalars(query if source is None else query.where(ResnapshotEntry.source == source))
        )


def active(registry: Registry, source: str) -> list[ResnapshotEntry]:
    """Return the runs that are under way, the oldest first."""
    with registry.reading() as session:
        return list(session.scalars(_among(source, ACTIVE)))


def leave_behind(session: Session, source: str) -> None:
    """Keep what a source's runs have done, but not where: their topics are made anew. None goes on."""
    for run in session.scalars(select(ResnapshotEntry).where(ResnapshotEntry.source == source)):
        kept = {"sinks": run.plan["sinks"], "left_out": run.plan.get("left_out", {})}
        kept["litter"] = run.plan.get("litter", [])
        run.plan = {**kept, "topics": sorted(topics_of(run)), "marks": {}, "former": True}
        run.error = None  # what it told to do is done
        if Phase(run.phase) in (*OPEN, Phase.FAILED):
            run.phase, run.wanted, run.ended_ms = Phase.ABORTED.value, "", now_ms()
            run.reason = "The source was recovered, which reads every table."


def refuse_former(run: ResnapshotEntry) -> ResnapshotEntry:
    """Return the run, unless it is of a life of the source that has ended.

    Raises:
        UsageError: ``RESNAPSHOT_FORMER``: nobody works on it any more.
    """
    if run.plan.get("former"):
        raise UsageError(f"Run {run.id} has ended: {run.source} was recovered.", code=FORMER)
    return run


def change(
    registry: Registry,
    name: str,
    plan: Mapping[str, Any] | None = None,
    *,
    among: Collection[Phase] = ACTIVE,
    also: Also = lambda _: None,
    **to: Any,
) -> ResnapshotEntry:
    """Change fields of a run; ``plan`` is added to its plan. A phase changes only from one of ``among``.

    One that is to be aborted does not come to rest instead: it stays as it is. What ``also`` does is done in
    the same transaction.

    Raises:
        UsageError: When somebody else has given it a phase that is not among them (``RESNAPSHOT_OVER``).
    """
    with registry.begin() as session:
        run = refuse_former(session.get_one(ResnapshotEntry, name))
        if "phase" in to and Phase(run.phase) not in among:
            hint = f"headrace resnapshot show {run.id}"
            raise UsageError(f"Run {run.id} is {run.phase}.", code=OVER, hint=hint)
        if to.get("phase") in RESTING and run.wanted == "abort":
            return run
        run.plan = {**run.plan, **(plan or {})}
        for field, value in to.items():
            setattr(run, field, value.value if isinstance(value, Phase) else value)
        also(session)
        return run


def count(registry: Registry, name: str, key: str, **told: Any) -> ResnapshotEntry:
    """Note some of a run's counts under one key, all of them or none."""
    with registry.begin() as session:
        run = refuse_former(session.get_one(ResnapshotEntry, name))
        new = {what: {**run.counts.get(what, {}), key: value} for what, value in told.items()}
        run.counts = {**run.counts, **new}
        return run


def note_litter(registry: Registry, name: str, sink: str, topic: str, *, left: bool) -> None:
    """Note that a run, of whatever life, has ``left`` half a target at a sink's store, or that it is gone."""
    with registry.begin() as session:
        run = session.get_one(ResnapshotEntry, name)
        others = [told for told in run.plan.get("litter", []) if told != [sink, topic]]
        run.plan = {**run.plan, "litter": [*others, *([[sink, topic]] if left else [])]}


def _untidy(run: ResnapshotEntry) -> str:
    """Say where a run has left something; empty when it has not."""
    where = ", ".join(sorted({sink for sink, _ in run.plan.get("litter", ())}))
    said = "did not answer, and keeps what the run had begun there: the next run removes it"
    return f"the store of {where} {said}" if where else ""


def end(
    registry: Registry,
    name: str,
    phase: Phase,
    error: HeadraceError | None = None,
    *,
    among: Collection[Phase] = ACTIVE,
) -> ResnapshotEntry:
    """End a run that is in a phase of ``among``, or leave it unfinished; one to be aborted does not rest.

    Raises:
        UsageError: When it is in another one (``RESNAPSHOT_OVER``).
    """
    known = run_of(registry, name)
    told = {**error.as_dict(), "kind": _kind(error)} if error is not None else None
    reason = "; ".join(filter(None, (error.message if error is not None else "", _untidy(known))))
    if told is not None:
        told["hint"] = named(told["hint"], source=known.source)
    ends: dict[str, Any] = {"error": told, "reason": reason, "wanted": "", "ended_ms": now_ms()}
    run = change(registry, name, among=among, phase=phase, **ends)
    if run.phase != phase.value:
        return run
    event = {"run": name, "tables": sorted(topics_of(run)), "why": run.why, **run.counts}
    registry.note(f"source {run.source}", f"resnapshot {phase.value}", **event)
    return run


def again(registry: Registry, run: ResnapshotEntry) -> str:
    """Return the command that reads the tables of a run that is over once more."""
    entry, mine = registry.source(run.source), topics_of(run)
    chosen = [table.schema for table in entry.tables if table.topic in mine]
    return read_anew(entry, chosen if len(chosen) < len(entry.tables) else ())


def raised(registry: Registry, run: ResnapshotEntry) -> HeadraceError:
    """Return what ended the run as an error."""
    told = run.error or {}
    kind = _KINDS.get(told.get("kind", ""), SourceError)
    if run.phase == Phase.ABORTED.value and not told:
        message = f"Run {run.id} was aborted. {run.reason}".strip()
        return SourceError(message, code="RESNAPSHOT_ABORTED", hint=again(registry, run))
    return kind(
        told.get("message", run.reason), code=told.get("code", "RESNAPSHOT_FAILED"), hint=told.get("hint", "")
    )


def _kind(error: HeadraceError) -> str:
    return next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "SourceError")


def _among(source: str, phases: Collection[Phase]) -> Any:
    told = [phase.value for phase in phases]
    chosen = select(ResnapshotEntry).where(ResnapshotEntry.source == source, ResnapshotEntry.phase.in_(told))
    return chosen.order_by(ResnapshotEntry.asked_ms, ResnapshotEntry.id)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
