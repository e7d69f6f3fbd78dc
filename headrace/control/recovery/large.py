"""Large tables of a new life: a run reads them, while the others stream already and the slot is in use.

The initial snapshot begins again when it is broken off, and nobody reads from the slot meanwhile: the server
may give it up for that. So it reads small tables only, as in a first load, and those that a run cannot read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import delete

from connectors.base import Capture, Source
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect
from headrace.control.entries import ResnapshotEntry, VerdictEntry
from headrace.control.first_load import leave_to_run
from headrace.control.recovery.job import Job
from headrace.control.registry import SourceTableEntry
from headrace.control.remedies import recover
from headrace.control.runs.repository import Phase, active, insert, run_of, topics_of
from headrace.control.runs.start import MAX_LATENCY_MS, hand_over, wait
from headrace.control.runs.words import in_words
from headrace.control.verdicts import LEFT_TO_RUN, standing
from headrace.model.errors import HeadraceError, SourceError, StackError
from headrace.model.schema import TableId

__all__ = ["read_large", "set_large_apart"]

_WHY = "the recovery of large tables"
_LOOK_S = 5.0
_PATIENCE_S = 1.0
"""So long a Connect is waited for that does not answer; the run itself waits for it without an end."""
_UNREADABLE = ("RESNAPSHOT_INCOMPLETE", "RESNAPSHOT_ROWS_BUSY", "RESNAPSHOT_UNREADABLE", "SOURCE_VALUES")
"""Codes of what keeps a run from reading a table, and not the initial snapshot."""
_THEN = " -- then: "
_BY_SNAPSHOT = "by_snapshot"
"""Topics that a run could not read; the next try leaves them to the initial snapshot."""


def set_large_apart(job: Job, source: Source, capture: Capture) -> tuple[TableId, ...]:
    """Note which tables of the new life the initial snapshot is not to read; return them."""
    name, entry = job.name, job.source
    with job.registry.begin() as session:
        of_before = VerdictEntry.source == name, VerdictEntry.code == LEFT_TO_RUN
        session.execute(delete(VerdictEntry).where(*of_before))
    large = source.large(capture.tables, capture.settings.load_by_run_mib)
    unfit = source.unfit_now([schema for schema in capture.tables if schema.table in large])
    refused = job.run.plan.get(_BY_SNAPSHOT, ())
    tables = tuple(t for t in large if t not in unfit and capture.topic(t) not in refused)
    leave_to_run(job.registry, entry, tables)
    return tables


def read_large(job: Job, refuse_another: Callable[[], None]) -> None:
    """Return when a run has read every large table into its topic; one that is under way is waited for.

    Args:
        job: The recovery.
        refuse_another: Raises when the database is no longer the one that is read.

    Raises:
        HeadraceError: When the run is paused, was aborted or has failed, when the connector fails, or what
            ``refuse_another`` says. The same command goes on.
    """
    look = _Look(job, refuse_another)
    while left := _left(job):
        topics = {table.topic for table in left}
        mine = [run for run in active(job.registry, job.name) if run.why == _WHY]
        run = next((run for run in mine if topics_of(run) & topics), None) or _begin(job, left)
        try:
            wait(job.context, run.id, see=look.see)
        except HeadraceError as error:
            error.hint = _on(job, run_of(job.registry, run.id), error)
            raise


def _left(job: Job) -> list[SourceTableEntry]:
    """Return the tables that no run has read yet."""
    topics = {found.topic for found in standing(job.registry, job.name) if found.code == LEFT_TO_RUN}
    return [table for table in job.source.tables if table.topic in topics]


def _begin(job: Job, tables: Sequence[SourceTableEntry]) -> ResnapshotEntry:
    """Have a run read the tables and sweep no sink: the recovery itself does that."""
    rows = source_of(job.context, job.source).estimate_rows([table.schema.table for table in tables])
    run = insert(
        job.registry,
        job.name,
        [table.topic for table in tables],
        [],
        queue=True,
        why=_WHY,
        sweep_many=False,
        rows_per_second=None,
        max_latency_ms=MAX_LATENCY_MS,
        estimate=sum(rows.values()),
        whole=False,
        left_out={},
    )
    hand_over(job.context, run)
    return run


@dataclass
class _Look:
    """Looks at a run, and now and then at those that it waits for, who may never come back."""

    job: Job
    refuse_another: Callable[[], None]
    _looked: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._words = in_words(self.job.say)

    def see(self, run: ResnapshotEntry) -> None:
        self._words(run)
        if time.monotonic() - self._looked > _LOOK_S:
            self._refuse_failed()
            self.refuse_another()
            self._looked = time.monotonic()

    def _refuse_failed(self) -> None:
        job = self.job
        with suppress(StackError), Connect(job.context.connect_url, patience=_PATIENCE_S) as connect:
            state = connect.state(capture_of(job.context, job.source).connector)
            if state.failed:
                raise SourceError(
                    f"The connector of {job.name} failed: {state.trace}",
                    code="CONNECTOR_FAILED",
                    hint=f"Mend the cause, then: {recover(job.name)}",
                )


def _on(job: Job, run: ResnapshotEntry, error: HeadraceError) -> str:
    """Return how the recovery goes on after what ended the wait for its run."""
    again = recover(job.name)
    if error.code == "RESNAPSHOT_PAUSED":
        return f"headrace resnapshot resume {run.id} && {again}"
    if run.phase == Phase.ABORTED.value:
        return again
    if run.phase != Phase.FAILED.value:
        return error.hint  # it was not the run
    if error.code in _UNREADABLE:
        refused = {*job.run.plan.get(_BY_SNAPSHOT, ()), *topics_of(run)}
        job.advance("beginning", **{_BY_SNAPSHOT: sorted(refused)})
        return again
    mends, _, goes_on = error.hint.rpartition(_THEN)
    if not mends and again not in goes_on and f"headrace resnapshot resume {run.id}" not in goes_on:
        mends = goes_on  # the run has nothing to go on with
    return _THEN.join(filter(None, (mends, again)))
