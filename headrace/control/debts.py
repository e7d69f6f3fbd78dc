"""What followers owe: tables of which a sink lacks something until a run has read them anew.

A file keeps it, for whoever follows may be killed; the guardian sees the file. A debt is over when a run that
began later has read the table for the sink. It is over as well when that run was aborted, has failed, or asks
whether to remove rows: a person decides then, and status tells what is left to do.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from headrace.config.pipeline import write_private
from headrace.control.context import Context
from headrace.control.follow import BY_ITSELF, PENDING
from headrace.control.registry import Registry, ResnapshotEntry, SinkEntry, SourceEntry, SourceTableEntry
from headrace.control.remedies import read_anew
from headrace.control.runs.repository import Phase, all_of, topics_of
from headrace.control.verdicts import State, Verdict, record
from headrace.model.schema import TableId

__all__ = ["Debt", "Debts", "forget"]

_TOLD = TypeAdapter(dict[str, list[tuple[str, tuple[str, str], int]]])
_UNREAD = "COLUMNS_UNREAD"
_BROKEN_OFF = (Phase.ABORTED.value, Phase.FAILED.value)
_OVER = (*_BROKEN_OFF, Phase.COMPLETED.value, Phase.UNFINISHED.value)


@dataclass(frozen=True, slots=True)
class Debt:
    """A table that is to be read anew for a sink.

    Args:
        sink: Which sink.
        table: Which table.
        since_ms: When that was noted. What began to read before does not count.
    """

    sink: str
    table: TableId
    since_ms: int


class Debts:
    """What is owed to the sinks of a source.

    Args:
        context: The installation.
        registry: Its registry.
        source: The source.
    """

    def __init__(self, context: Context, registry: Registry, source: str) -> None:
        self._path, self._registry, self._source = _path(context, source), registry, source

    def owe(self, sink: str, tables: Collection[TableId]) -> None:
        """Note, as of now, that a sink lacks something of tables."""
        if not tables:
            return
        since_ms = self._registry.moment(self._source)
        kept = [debt for debt in self._read() if debt.sink != sink or debt.table not in tables]
        self._write([*kept, *(Debt(sink, table, since_ms) for table in tables)])

    def settle(self) -> list[tuple[Debt, ResnapshotEntry | None]]:
        """Forget what is over; return what is left, with the run that is to read it if there is one.

        Raises:
            UsageError: When the source is gone (``SOURCE_UNKNOWN``).
        """
        source = self._registry.source(self._source)
        tables = {table.schema.table: table for table in source.tables}
        sinks = {sink.name: sink for sink in self._registry.sinks(self._source)}
        runs = all_of(self._registry, self._source)
        left: list[tuple[Debt, ResnapshotEntry | None]] = []
        for debt in self._read():
            sink, table = sinks.get(debt.sink), tables.get(debt.table)
            if sink is None or table is None or table.topic not in sink.tables:
                continue
            run = _run_of(runs, debt, sink, table.topic)
            if not _is_over(run):
                left.append((debt, run))
            elif run is not None and run.phase in _BROKEN_OFF and not run.plan.get("former"):
                _tell(self._registry, source, table, sink.name, run)
        self._write([debt for debt, _ in left])
        return left

    def _read(self) -> list[Debt]:
        try:
            told = _TOLD.validate_json(self._path.read_bytes())["debts"]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError):  # damaged, or of an older version: whatever it said, this settles it
            return self._everything()
        return [Debt(sink, TableId(*table), since_ms) for sink, table, since_ms in told]

    def forget_before(self, moment_ms: int) -> None:
        """Owe nothing any more of before, for every table was read since."""
        self._write([debt for debt in self._read() if debt.since_ms >= moment_ms])

    def _everything(self) -> list[Debt]:
        since_ms = self._registry.moment(self._source)
        topics = {table.topic: table.schema.table for table in self._registry.source(self._source).tables}
        sinks = (s for s in self._registry.sinks(self._source) if s.on_schema_change in BY_ITSELF)
        return [
            Debt(sink.name, topics[topic], since_ms)
            for sink in sinks
            for topic in sink.tables
            if topic in topics
        ]

    def _write(self, debts: Sequence[Debt]) -> None:
        if not debts:
            self._path.unlink(missing_ok=True)
            return
        told = [(debt.sink, (debt.table.schema, debt.table.name), debt.since_ms) for debt in debts]
        write_private(self._path, json.dumps({"debts": told}))


def forget(context: Context, source: str) -> None:
    """Owe nothing any more, as of a source that is gone, or of which every table was read."""
    _path(context, source).unlink(missing_ok=True)


def _path(context: Context, source: str) -> Path:
    return context.run / PENDING.format(source=source)


def _run_of(
    runs: Iterable[ResnapshotEntry], debt: Debt, sink: SinkEntry, topic: str
) -> ResnapshotEntry | None:
    """Return the newest run that reads the table for the sink, of those that count."""
    lacking_ms = sink.incomplete_ms.get(topic, 0) if topic in sink.incomplete else 0
    since_ms = max(debt.since_ms, lacking_ms + 1)
    mine = (run for run in runs if _is_about(run, debt, topic) and debt.sink in run.plan["sinks"])
    return next((run for run in mine if run.begun_ms >= since_ms), None)


def _is_about(run: ResnapshotEntry, debt: Debt, topic: str) -> bool:
    """Return whether a run is to read the table, or has left it out: no run can read it then."""
    return topic in topics_of(run) or str(debt.table) in run.plan.get("left_out", {})


def _is_over(run: ResnapshotEntry | None) -> bool:
    if run is None or run.plan.get("former"):
        return run is not None
    # Which of several tables it has failed at nobody knows: each is read by a run of its own then.
    return run.phase in _OVER and not (run.phase == Phase.FAILED.value and len(topics_of(run)) > 1)


def _tell(
    registry: Registry, source: SourceEntry, table: SourceTableEntry, sink: str, run: ResnapshotEntry
) -> None:
    """Have status say what nobody does by himself any more."""
    reason = f"rows may lack what has changed of the columns: run {run.id}, to read them, is {run.phase}"
    verdict = Verdict(State.DEGRADED, reason, read_anew(source, [table.schema]))
    record(registry, source, [table.topic], _UNREAD, verdict, sink=sink)
