"""Records → the sink, on an executor or in the driver; the outcome comes back as one small report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import cast

from connectors.doubt import cleared, doubtful
from headrace.config.pipeline import PipelineSpec
from headrace.model.change import Change, Ignored, Poison, Record, Truncate
from headrace.model.errors import HeadraceError, SinkError
from headrace.model.key import Key
from headrace.model.outcome import ROW_MISSING, Rejected, Stale
from headrace.model.schema import TableId, TableSchema
from sinks.about import rebuild_hint
from sinks.base import Sink
from sinks.document import CONVERSION_ERRORS
from sinks.registry import build
from spark_jobs.aside import Aside
from spark_jobs.carry import Carried, Carry
from spark_jobs.collapse import Collapser, Drained
from spark_jobs.deferred import patiently
from spark_jobs.doubts import ask
from spark_jobs.held import BEHIND, Holds, load_holds
from spark_jobs.moves import Burial, found_in
from spark_jobs.ownership import Fenced
from spark_jobs.per_pipeline import PerPipeline
from spark_jobs.report import Report
from spark_jobs.tables import Tables

__all__ = [
    "Pause",
    "apply_records",
    "carry_of",
    "forget_sinks",
    "holds_of",
    "sink_of",
]

_TABLES_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Pause:
    """Between records: what has come so far takes much room, and had better be written before more comes."""


def sink_of(pipeline: str) -> tuple[Sink, Tables]:
    """Return the pipeline's sink and tables; the sink writes only while the pipeline's holder may.

    The store is opened once per process, whoever holds it and whatever runs have swept.
    """
    _opened.tidy()  # it is asked for nothing while no text changes
    return _fenced(pipeline)


def forget_sinks() -> None:
    """Have each sink opened anew, as a process that has just started would."""
    _fenced.clear()
    _opened.clear()


def _fence(spec: PipelineSpec) -> tuple[Sink, Tables]:
    same = {"holder": "", "swept": {}, "paused": False, "withheld": False}
    sink = _opened(spec.model_copy(update=same).model_dump_json())
    return cast("Sink", Fenced(sink, spec)) if spec.holder else sink, Tables.of(spec)


_opened = PerPipeline(lambda spec: build(spec.kind, spec.sink, spec.settings), kept=1)
_fenced = PerPipeline(_fence)


def _in_order_of_keys(
    sink: Sink, schema: TableSchema, latest: list[Change], drained: Drained
) -> Iterator[list[Change]]:
    """Yield the changes in groups to apply one after the other.

    Rows that moved to another key and were not told whole come first: once the old row's delete is applied,
    nothing could fill them after a crash, unless the same records came together again.
    """
    first = [change for change in latest if change.key in drained.moved] if drained.moved else []
    if first:
        bare = [drained.moved[change.key] for change in first if change.absent]
        found = sink.rows(schema, list({stay.key for stays in bare for stay in stays})) if bare else {}
        yield [change.filled(found_in(drained.moved[change.key], found)) for change in first]
        latest = [change for change in latest if change.key not in drained.moved]
    if latest:
        yield latest


def _without_row(sink: Sink, schema: TableSchema, deleted: Mapping[Key, int]) -> set[Key]:
    """Return the keys under which the sink has only a row that is deleted by now.

    Where it has none the sink knows better whether the change is too late, or its row is missing.

    Args:
        sink: The sink.
        schema: The table's.
        deleted: Key → version of the newest delete before its change.
    """
    stored = sink.rows(schema, list(deleted)) if deleted else {}
    return {key for key, row in stored.items() if row.version < deleted[key]}


@contextmanager
def _of(table: TableId, report: Report) -> Iterator[None]:
    """Note trouble that is this table's alone; the rest goes on.

    So it does when something in the table's rows is none of what its columns can hold.
    """
    try:
        yield
    except SinkError as error:
        if error.table is None:
            raise
        _note(report, table, error)
    except CONVERSION_ERRORS as error:
        _note(report, table, _unreadable(table, error))


def _note(report: Report, table: TableId, error: SinkError) -> None:
    report.troubles.setdefault(str(table), {**error.as_dict(), "retry": error.retry.value})


def _unreadable(table: TableId, error: Exception) -> SinkError:
    return SinkError(
        f"What the store holds of {table} cannot be read: {type(error).__name__}.",
        code="SINK_TABLE_UNREADABLE",
        hint=rebuild_hint(table),
        table=table,
    )


def _write(sink: Sink, tables: Tables, schema: TableSchema, parts: Iterable[Drained], report: Report) -> None:
    for drained in parts:
        if str(schema.table) not in report.troubles:
            with _of(schema.table, report):
                _write_part(sink, tables, schema, drained, report)


def _write_part(sink: Sink, tables: Tables, schema: TableSchema, drained: Drained, report: Report) -> None:
    latest, taken, severed = drained.latest, drained.taken, drained.severed
    if not latest:
        return
    table, holds = str(schema.table), report.holds
    bad: dict[Key, Rejected] = {
        change.key: BEHIND
        for change in latest
        if holds.held and holds.blocks(table, change, taken, drained.moved.get(change.key, ()))
    }
    stale = 0
    good = [change for change in latest if change.key not in bad] if bad else latest
    if doubtful(schema.columns):
        good, lost = cleared(schema, good, partial(ask, tables.origin))
        bad |= lost
    for group in _in_order_of_keys(sink, schema, good, drained):
        cut_off = {c.key: severed[c.key] for c in group if c.absent and c.key in severed} if severed else {}
        if alone := _without_row(sink, schema, cut_off):
            bad |= dict.fromkeys(alone, ROW_MISSING)
            group = [change for change in group if change.key not in alone]
        for change, outcome in patiently(sink, schema, group):
            if isinstance(outcome, Rejected):
                bad[change.key] = outcome
                continue
            if holds.held:
                holds.heal(table, change.key.id, change.position.version)
            if isinstance(outcome, Stale):
                stale += 1
    report.took(taken, bad, stale)


def _keep_halves(sink: Sink, schema: TableSchema, collapser: Collapser, carry: Carry, holds: Holds) -> None:
    """Keep, before they go, the rows whose new key may be the next batch's first record."""
    for delete, burial in collapser.halves():
        places = list({stay.key for stay in burial.stays})
        if any(holds.missing(str(schema.table), place.id) for place in places):
            continue  # what it has is not what the source had
        stored = found_in(burial.stays, sink.rows(schema, places))
        carry.keep(delete.origin, schema.table, Burial(burial.key, {**stored, **burial.row}))


def apply_records(
    stream: Iterable[Record | Pause],
    sink: Sink,
    tables: Tables,
    carry: Carry,
    holds: Holds,
    *,
    rows_at_once: int | None = None,
    tables_at_once: int = _TABLES_AT_ONCE,
) -> Report:
    """Apply records in order; every one ends applied, stale, in ``rejects``, or ``error`` is set.

    Records of different tables may be mixed; each table's order is kept, a truncate is a barrier
    of its table. With ``error`` set nothing may be settled: the batch has to run again. Of a table in
    ``troubles`` nothing may be settled either; what the report says of others holds.

    Args:
        stream: The records.
        sink: Where to.
        tables: The tables they may belong to.
        carry: What an earlier batch kept of rows whose key changes.
        holds: Rows that were behind before these records; the report tells what has become of them.
        rows_at_once: When so many rows of a table wait to be written, that begins, beside the reading of
            what comes next; as many as the sink says when None.
        tables_at_once: Of so many tables the last rows are written at the same time.
    """
    report = Report(holds=holds)
    try:
        with Aside() as aside:
            at_once = rows_at_once or sink.rows_at_once
            pending = _apply(stream, sink, tables, carry, report, aside, at_once)
        _finish(pending, sink, tables, carry, report, tables_at_once)
    except HeadraceError as error:
        report.error = {**error.as_dict(), "retry": error.retry.value}
    return report


def _apply(
    stream: Iterable[Record | Pause],
    sink: Sink,
    tables: Tables,
    carry: Carry,
    report: Report,
    aside: Aside,
    rows_at_once: int,
) -> dict[TableId, Collapser]:
    """Apply all but the last rows of each table, which are returned."""
    kept = carry.kept()
    waiting = _Waiting(_remembering(kept.values()), sink, tables, report, aside)
    table, collapser = None, Collapser()
    for record in _spending(kept, stream, report) if kept else stream:
        match record:
            case Change():
                if record.table is not table:
                    if table is not None:
                        # Long stretches are of one partition, and that may have been all of it.
                        waiting.write(table, rows_at_once // 10)
                    table = record.table
                    collapser = waiting.rows.setdefault(table, Collapser())
                collapser.add(record)
                if len(collapser) >= rows_at_once:
                    waiting.write(table, rows_at_once)
            case Truncate():
                waiting.truncate(record)
            case Poison():
                waiting.refuse(record)
            case Pause():
                for each in waiting.rows:
                    waiting.write(each, 1)
            case Ignored():
                pass
    return waiting.rows


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What waits to be written.

    Args:
        rows: By table.
        sink, tables: Where to.
        report: Told what became of it.
        aside: Writes.
    """

    rows: dict[TableId, Collapser]
    sink: Sink
    tables: Tables
    report: Report
    aside: Aside

    def write(self, table: TableId, least: int) -> None:
        """Begin to write a table's rows, if they are so many and may be cut here."""
        rows = self.rows[table]
        if len(rows) >= least and rows.splittable:
            schema = self.tables.schemas[table]
            self.aside.do(partial(_write, self.sink, self.tables, schema, rows.drain(), self.report))

    def truncate(self, record: Truncate) -> None:
        """Empty a table, after all that came before."""
        self.aside.wait()
        schema = self.tables.schemas[record.table]
        if record.table in self.rows:
            _write(self.sink, self.tables, schema, self.rows[record.table].drain(), self.report)
        if str(record.table) not in self.report.troubles:
            with _of(record.table, self.report):
                self.sink.truncate(schema, record.position)
                self.report.emptied(record)

    def refuse(self, record: Poison) -> None:
        """Put a record aside that says nothing."""
        self.aside.wait()  # what is being written shares the report
        place, version = self.tables.place(record.origin)
        self.report.reject(str(place), record, version, Rejected(record.code, record.reason))
        self.report.table(place)["rejected"] += 1


def _finish(
    pending: Mapping[TableId, Collapser],
    sink: Sink,
    tables: Tables,
    carry: Carry,
    report: Report,
    at_once: int,
) -> None:
    """Apply the last rows of each table."""

    def some(mine: Iterator[TableId]) -> Report:
        # What the holds know of a table is touched by nobody but who writes that table.
        part = Report(holds=report.holds, troubles=dict(report.troubles))
        for table in mine:
            schema, collapser = tables.schemas[table], pending[table]
            if str(table) not in part.troubles:
                with _of(table, part):
                    _keep_halves(sink, schema, collapser, carry, part.holds)
            _write(sink, tables, schema, collapser.drain(), part)
        return part

    left = [table for table, collapser in pending.items() if collapser]
    each = iter(left)  # whoever is done with a table takes the next
    if len(left) == 1:
        report.add(some(each))
    elif left:
        threads = min(at_once, len(left))
        with ThreadPoolExecutor(threads, "tables") as pool:
            for part in pool.map(some, repeat(each, threads)):
                report.add(part)


def _remembering(kept: Iterable[Carried]) -> dict[TableId, Collapser]:
    pending: dict[TableId, Collapser] = {}
    for carried in kept:
        pending.setdefault(carried.table, Collapser()).remember(carried)
    return pending


def _spending(
    kept: dict[tuple[str, int], Carried], stream: Iterable[Record | Pause], report: Report
) -> Iterator[Record | Pause]:
    """Pass the records on and note which kept rows are of no use afterwards: their partition goes on."""
    for record in stream:
        if not isinstance(record, Pause):
            carried = kept.pop((record.origin.topic, record.origin.partition), None)
            if carried is not None:
                report.spent.append(carried.name)
        yield record


def carry_of(pipeline: str, begins: Mapping[tuple[str, int], int]) -> Carry:
    """Return what was kept for records from these offsets on, and keeps for what comes later."""
    return Carry(_checkpoint_of(pipeline) / "halves", begins)


def holds_of(pipeline: str) -> Holds:
    """Return the pipeline's rows that are behind."""
    return load_holds(_checkpoint_of(pipeline))


_checkpoint_of: PerPipeline[Path] = PerPipeline(lambda spec: spec.checkpoint)
