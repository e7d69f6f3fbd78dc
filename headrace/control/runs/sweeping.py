"""The sweeping half of a run: each sink applies what was read, then the store removes what was not seen.

The sink's own query does it between two of its batches, under its claim: no row is sent to anybody else,
and no other writer is at the table meanwhile. Each table is swept as soon as its sink has applied it: one
that is in trouble keeps no other waiting.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from connectors.registry import why_unreadable
from headrace.control.capture import source_of
from headrace.control.progress import SinkProgress, read_progress
from headrace.control.registry import ResnapshotEntry, SinkEntry, SourceEntry, SourceTableEntry
from headrace.control.remedies import read_anew
from headrace.control.rest import resting
from headrace.control.runs.asking import refuse_hidden
from headrace.control.runs.final import FINAL
from headrace.control.runs.job import Job, Paused
from headrace.control.runs.left_out import TablesUnread, leave_out
from headrace.control.runs.repository import (
    SWEEP_LARGE,
    UNSWEPT,
    Phase,
    change,
    is_swept,
    keep_telling,
    topics_of,
)
from headrace.control.runs.settling import Lack, lack_of, pipeline_of, shadowed, worded
from headrace.control.runs.shadowing import discard, fill, let_go_on
from headrace.control.runs.table_sweep import mine_of, remember, sweep_table
from headrace.control.sweeps import ROWS_BEHIND
from headrace.control.verdicts import State, Verdict, record
from headrace.model.errors import HeadraceError, SinkError, SourceError
from headrace.model.schema import TableId

__all__ = ["leave_unswept", "sweep"]

_POLL_S = 0.3
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 15.0
_TOLD_WITHIN_S = 5.0
"""Telling the engine what is swept starts a sink's query anew; once does for tables that are ready soon."""
_SILENT = ("SINK_AT_REST", "SINK_BUSY")
"""Codes of errors that the sink's other tables would meet as well, after another wait."""
_PAUSED = "the run is paused"


def sweep(job: Job) -> None:
    """Return when every sink of the run has applied what was read and is swept.

    Raises:
        UsageError: When a sweep would remove too much (``RESNAPSHOT_SWEEP_LARGE``); the other sinks and
            tables are swept.
        SinkError: When a target refuses for good; the other sinks and tables are swept.
        SourceError: When rows were passed over, so that a sweep would remove them; the others are swept.
        Aborted: When somebody has asked for that.
    """
    rounds = _Rounds(job)
    let_go_on(job.context, job.run)
    try:
        while True:
            if job.heed():
                job.counts.clear()  # much may come while it rests, and all of it would be looked through
            else:
                waits = rounds.go()
                job.say("; ".join([*waits, *rounds.refusals]) if waits else "")
                if not waits:
                    break
            time.sleep(_POLL_S)
    finally:
        rounds.tell()
    rounds.raise_refused()


@dataclass(frozen=True, slots=True)
class _Later:
    """When a sweep that the store did not carry out is asked for again; pauses are in seconds."""

    at: float
    pause: float
    lack: Lack


class _Rounds:
    """Looks at every sink of a run, again and again, and sweeps what is ready."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._refused: dict[tuple[str, str], HeadraceError] = {}
        self._later: dict[tuple[str, str], _Later] = {}
        # Sink → since when its pipeline may lack what is swept. Who worked on the run before may have died.
        self._untold: dict[str, float] = dict.fromkeys(job.run.counts.get("swept", {}), float("-inf"))

    @property
    def refusals(self) -> list[str]:
        """Say which sweeps are not tried again."""
        return [f"{error.message} ({error.code})" for error in self._refused.values()]

    def go(self) -> list[str]:
        """Sweep each table that its sink has applied; return what is waited for."""
        job, run = self._job, self._job.run
        if run.plan.get("sweep_many"):  # a person may have allowed it meanwhile
            self._refused = {at: why for at, why in self._refused.items() if why.code != SWEEP_LARGE}
        waits: list[str] = []
        for entry in job.registry.sinks(run.source):
            if entry.name in run.plan["sinks"]:
                waits += self._visit(entry)
        if waits and job.run.phase == Phase.SWEEPING.value:
            change(job.registry, job.name, phase=Phase.APPLYING)
        return waits

    def tell(self) -> None:
        """Tell the engine what is swept."""
        if not self._untold:
            return
        for entry in self._job.registry.sinks(self._job.run.source):
            if entry.name in self._untold:
                remember(self._job, entry)
        self._untold.clear()

    def raise_refused(self) -> None:
        """Raise what refused, and first what a person cannot allow; of tables that are left out nothing."""
        mine = topics_of(self._job.run)
        refused = [error for (_, topic), error in self._refused.items() if topic in mine]
        if refused:
            raise min(refused, key=lambda error: error.code in (SWEEP_LARGE, ROWS_BEHIND))

    def _visit(self, entry: SinkEntry) -> list[str]:
        run = self._job.run
        left = [
            table
            for table in mine_of(self._job, entry)
            if not is_swept(run, entry.name, table) and (entry.name, table.topic) not in self._refused
        ]
        waits = self._look(run, entry, left) if left else []
        since = self._untold.get(entry.name)
        if since is not None and (not waits or time.monotonic() - since >= _TOLD_WITHIN_S):
            remember(self._job, entry)
            del self._untold[entry.name]
        return waits

    def _look(self, run: ResnapshotEntry, entry: SinkEntry, left: Sequence[SourceTableEntry]) -> list[str]:
        progress = read_progress(self._job.context.progress, entry.name)
        if progress is None:
            return [f"{entry.name} has not begun"]
        if state := resting(self._job.context, entry.name):
            return [f"sink {entry.name} is {state}"]
        lacks: list[Lack] = []
        ready: list[SourceTableEntry] = []
        for table in left:
            if lack := self._lack(run, entry, table, progress):
                lacks.append(lack)
            elif (entry.name, table.topic) not in self._refused:
                ready.append(table)
        return worded(entry.name, lacks + self._sweep(entry, ready))

    def _lack(
        self, run: ResnapshotEntry, entry: SinkEntry, table: SourceTableEntry, progress: SinkProgress
    ) -> Lack | None:
        later = self._later.get((entry.name, table.topic))
        if later is not None and time.monotonic() < later.at:
            return later.lack
        if not shadowed(run, entry.name, table.topic):
            return lack_of(run, table, progress)
        context = self._job.context
        try:
            fill(context, run, entry, table)
        except SinkError as error:
            return self._put_off(entry, table, error)
        filler = read_progress(context.progress, pipeline_of(run, entry.name, table))
        if filler is not None and _has_hole(run, filler, table):
            return self._put_off(entry, table, _dropped(self._job.source, run, table))
        return lack_of(run, table, filler)

    def _sweep(self, entry: SinkEntry, ready: Sequence[SourceTableEntry]) -> list[Lack]:
        """Sweep tables of one sink; return what keeps the others from it."""
        if not ready:
            return []
        job, lacks = self._job, list[Lack]()
        ready = self._seen(entry, ready)
        run = change(job.registry, job.name, phase=Phase.SWEEPING)
        for n, table in enumerate(ready):
            try:
                job.refuse_rest()
                refused = sweep_table(job, run, entry, table)
            except Paused:
                return [*lacks, *(Lack(str(left.schema.table), 0, _PAUSED) for left in ready[n:])]
            except (SinkError, SourceError) as error:
                rest = ready[n:] if error.code in _SILENT else [table]
                lacks += [lack for left in rest if (lack := self._put_off(entry, left, error))]
                if error.code in _SILENT:
                    break
                continue
            if refused is not None:
                self._refused[entry.name, table.topic] = refused
            else:
                self._untold.setdefault(entry.name, time.monotonic())
        return lacks

    def _seen(self, entry: SinkEntry, ready: Sequence[SourceTableEntry]) -> list[SourceTableEntry]:
        """Return the tables of which our role sees every row; the others are not swept.

        Without one that was dropped the run goes on: nothing is left to sweep by.
        """
        job = self._job
        try:
            refuse_hidden(job)
        except TablesUnread as error:
            gone = {table: why for table, why in error.tables.items() if why is not None and why.alone}
            self._discard(gone)
            left_out = bool(gone) and leave_out(job, source_of(job.context, job.source), gone)
            hidden = [table for table in ready if table.schema.table in error.tables]
            for table in hidden:
                if not (left_out and table.schema.table in gone):
                    self._refused[entry.name, table.topic] = error
            return [table for table in ready if table not in hidden]
        return list(ready)

    def _discard(self, gone: Collection[TableId]) -> None:
        """Give up the shadows of tables; once they are left out, nobody knows of these any more."""
        job, run = self._job, self._job.run
        for entry in job.registry.sinks(run.source):
            for table in mine_of(job, entry) if gone else ():
                mine = table.schema.table in gone and shadowed(run, entry.name, table.topic)
                if mine and not is_swept(run, entry.name, table):
                    discard(job.context, run, entry, table)

    def _put_off(self, entry: SinkEntry, table: SourceTableEntry, error: HeadraceError) -> Lack | None:
        """Note that the table's target refuses: for good, or to be asked again after a pause."""
        place = (entry.name, table.topic)
        if error.code in FINAL:
            self._refused[place] = error
            return None
        before = self._later.get(place)
        pause = min(2 * before.pause, _LONGEST_PAUSE_S) if before is not None else _FIRST_PAUSE_S
        lack = Lack(str(table.schema.table), 0, f"{error.message} ({error.code})")
        self._later[place] = _Later(time.monotonic() + pause, pause, lack)
        return lack


def _has_hole(run: ResnapshotEntry, filler: SinkProgress, table: SourceTableEntry) -> bool:
    """Return whether Kafka had let go of records that a run has read before a shadow was filled with them.

    What it lacks of before that the run has read once more.
    """
    counters = filler.tables.get(str(table.schema.table))
    trouble = (counters.trouble if counters is not None else None) or {}
    marks = run.plan["marks"][table.topic]
    return any(offset > marks[int(partition)] for partition, offset in (trouble.get("below") or {}).items())


def _dropped(source: SourceEntry, run: ResnapshotEntry, table: SourceTableEntry) -> SourceError:
    readable = not why_unreadable(source.kind, table.schema)
    return SourceError(
        f"Kafka has let go of rows of {table.schema.table} that run {run.id} has read, before a target was"
        " filled with them: its readers would lack them.",
        code="RESNAPSHOT_INCOMPLETE",
        hint=f"headrace resnapshot resume {run.id}" if readable else read_anew(source, [table.schema]),
    )


def leave_unswept(job: Job, how: str) -> None:
    """Note of each table that was read, and is not swept at a sink, that rows may be left which are gone.

    Args:
        job: The run.
        how: How it has ended, for people.
    """
    run = job.run
    keep_telling(job.registry, run)
    for entry in job.registry.sinks(run.source):
        if not run.plan.get("ends") or entry.name not in run.plan["sinks"]:
            continue
        for table in mine_of(job, entry):
            if is_swept(run, entry.name, table):
                continue
            if shadowed(run, entry.name, table.topic):
                discard(job.context, run, entry, table)
            else:
                reason = f"run {run.id} {how} before it removed rows that the source no longer has"
                remedy = read_anew(job.source, [table.schema])
                verdict = Verdict(State.DEGRADED, reason, remedy)
                record(job.registry, job.source, [table.topic], UNSWEPT, verdict, sink=entry.name)
