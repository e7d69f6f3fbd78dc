"""One table at one sink of a run: swept, healed, and remembered for replays."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from headrace.config.pipeline import PipelineSpec, Swept
from headrace.control.pipelines import rewrite
from headrace.control.registry import ResnapshotEntry, SinkEntry, SourceTableEntry
from headrace.control.remedies import read_anew
from headrace.control.runs.counted import NOTHING_GOES, refuse_unseen
from headrace.control.runs.job import Aborted, Job, Paused
from headrace.control.runs.passed import swept_at
from headrace.control.runs.repository import SWEEP_LARGE, UNSWEPT, change, count, is_swept
from headrace.control.runs.settling import pipeline_of, shadowed
from headrace.control.runs.shadowing import switch
from headrace.control.sweeps import ROWS_BEHIND, Found, ask_sweep
from headrace.control.verdicts import State, Verdict, healed, over, record, standing, told_again
from headrace.model.errors import SinkError
from headrace.observe.failpoints import hit

__all__ = ["mine_of", "remember", "sweep_table"]

_LARGE_ROWS = 100
_LARGE_SHARE = 0.2


def mine_of(job: Job, entry: SinkEntry) -> list[SourceTableEntry]:
    """Return the run's tables that the sink mirrors."""
    return [table for table in job.tables(job.run) if table.topic in entry.tables]


def sweep_table(
    job: Job, run: ResnapshotEntry, entry: SinkEntry, table: SourceTableEntry
) -> SinkError | None:
    """Have the store remove the rows that were not seen; return why not, when it would remove too much.

    Raises:
        SinkError: When the store does not do it.
        SourceError: When the run has passed over rows (``RESNAPSHOT_INCOMPLETE``).
        Aborted: When somebody has asked for that, and the query has not come to it.
        Paused: The same.
    """
    name, marks = str(table.schema.table), run.plan["marks"][table.topic]
    limit = None if run.plan.get("sweep_many") else (_LARGE_ROWS, _LARGE_SHARE)
    shadow = shadowed(run, entry.name, table.topic)
    writer = pipeline_of(run, entry.name, table) if shadow else entry.name
    try:
        if shadow:
            _drop_known(job, entry, writer, table)
        found = _ask(job, entry, writer, table, marks, limit)
    except SinkError as error:
        if error.code == ROWS_BEHIND:
            _tell_behind(job, run, entry, table)
        raise
    hit("run.swept", entry.kind)
    told_again(job.registry, run.source, table.topic, run.begun_ms)  # every row of the database was read
    if found.refused:
        _expect(job, entry, name, 0)
        refused = _refused(job, run, entry, table, found)
        if not shadow:
            # The sink has every row that was read; that some are too many is what is left to say.
            healed(job.registry, run.source, table.topic, entry.name, run.begun_ms)
            job.registry.completed(entry.name, table.topic, run.begun_ms)
        return refused
    if shadow:
        switch(job.context, run, entry, table)
    for code in (SWEEP_LARGE, ROWS_BEHIND):
        over(job.registry, run.source, table.topic, code, sink=entry.name)
    for said in standing(job.registry, run.source):  # by a process that died before the run was ended
        if (said.code, said.sink, said.topic) == (UNSWEPT, entry.name, table.topic) and run.id in said.reason:
            over(job.registry, run.source, table.topic, UNSWEPT, sink=entry.name)
    healed(job.registry, run.source, table.topic, entry.name, run.begun_ms)
    job.registry.completed(entry.name, table.topic, run.begun_ms)
    hit("run.healed", entry.kind)
    run = job.run
    removed = max(found.removed, _goes(run, entry, name))
    swept = {**run.counts.get("swept", {}).get(entry.name, {}), name: removed}
    before = run.counts.get("written", {}).get(entry.name, 0)
    written = sum(run.plan["ends"][table.topic]) - sum(marks)
    count(job.registry, job.name, entry.name, swept=swept, written=before + written)
    hit("run.counted", entry.kind)
    return None


def _drop_known(job: Job, entry: SinkEntry, shadow: str, table: SourceTableEntry) -> None:
    """Remove from a shadow what an earlier run has removed from what is served: nobody is asked twice.

    The topic goes on telling of rows whose end it does not tell.
    """
    before = swept_at(job.registry, entry, [table]).get(table.topic)
    if before is not None and any(before.marks):
        ask_sweep(job.context, shadow, table, before.marks, heed=job.refuse_rest)


def _ask(
    job: Job,
    entry: SinkEntry,
    writer: str,
    table: SourceTableEntry,
    marks: list[int],
    limit: tuple[int, float] | None,
) -> Found:
    """Look what would go; if it is something, and may, have it removed."""
    name = str(table.schema.table)
    found = ask_sweep(job.context, writer, table, marks, NOTHING_GOES, job.refuse_rest)
    if found.refused:  # there is something to remove
        refuse_unseen(job, writer, table, marks)
        _found_gone(job, table)
        known = _goes(job.run, entry, name)
        # Of a sweep that was broken off some are gone already.
        _expect(job, entry, name, max(found.older, known))
        try:
            found = ask_sweep(job.context, writer, table, marks, limit, job.refuse_rest)
        except (Aborted, Paused):  # it was not begun
            _expect(job, entry, name, known)
            raise
    return found


def _tell_behind(job: Job, run: ResnapshotEntry, entry: SinkEntry, table: SourceTableEntry) -> None:
    """Note that rows which are gone stay until those that the sink has refused are whole."""
    reason = f"run {run.id} could not remove rows that are gone: the sink has refused newer changes of some"
    verdict = Verdict(State.DEGRADED, reason, read_anew(job.source, [table.schema]))
    record(job.registry, job.source, [table.topic], ROWS_BEHIND, verdict, sink=entry.name)


def _found_gone(job: Job, table: SourceTableEntry) -> None:
    """Have sinks that come later pass the run's marks, also when nothing is removed and the run is ended."""
    plan, topic = job.run.plan, table.topic
    found = {topic: [plan["marks"][topic], plan["ends"][topic]]}
    change(job.registry, job.name, {"passed": {**plan.get("passed", {}), **found}})


def _expect(job: Job, entry: SinkEntry, table: str, rows: int) -> None:
    """Note how many rows are to go: when this process dies they may be gone, and the next one finds none."""
    goes = job.run.plan.get("goes", {})
    mine = {**goes.get(entry.name, {}), table: rows}
    change(job.registry, job.name, {"goes": {**goes, entry.name: mine}})


def _goes(run: ResnapshotEntry, entry: SinkEntry, table: str) -> int:
    """Return how many rows were to go when a sweep was begun that may have been broken off."""
    found: int = run.plan.get("goes", {}).get(entry.name, {}).get(table, 0)
    return found


def _refused(
    job: Job, run: ResnapshotEntry, entry: SinkEntry, table: SourceTableEntry, found: Found
) -> SinkError:
    name = table.schema.table
    remedy = f"headrace resnapshot resume {run.id} --sweep-many"
    said = f"{found.older:,} of {found.total:,} rows of {name}"
    reason = f"run {run.id} has found {said} that the source does not show; they are not removed yet"
    verdict = Verdict(State.DEGRADED, reason, remedy)
    record(job.registry, job.source, [table.topic], SWEEP_LARGE, verdict, sink=entry.name)
    hit("run.refused", entry.kind)
    return SinkError(f"The sweep of {entry.name} would remove {said}.", code=SWEEP_LARGE, hint=remedy)


def remember(job: Job, entry: SinkEntry) -> None:
    """Tell the engine the marks, so that rows that were removed stay removed through any replay."""
    run = job.run
    done = {
        table.topic: Swept(
            marks=tuple(run.plan["marks"][table.topic]), ends=tuple(run.plan["ends"][table.topic])
        )
        for table in mine_of(job, entry)
        if is_swept(run, entry.name, table)
    }

    def with_newer(spec: PipelineSpec) -> Mapping[str, object]:
        known = spec.swept
        # A later run may have read a table that this one was over with.
        newer = {t: told for t, told in done.items() if t not in known or known[t].marks <= told.marks}
        return {"swept": {**known, **newer}}

    with suppress(FileNotFoundError, ValueError):  # removed, or damaged: then it is made anew from the run
        rewrite(job.context, entry.name, with_newer)
    hit("run.remembered", entry.kind)
