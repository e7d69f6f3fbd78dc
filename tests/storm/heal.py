"""After a storm: carry out the remedies as they are printed, until everything is in sync or none helps."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg

from headrace.control.lag import LagReport, TableLag
from headrace.demo.lookout import Lookout, behind, shows_all_since
from tests.storm.field import Field
from tests.support.remedy import steps

__all__ = ["heal"]

_ROUNDS = 6
_PATIENCE_S = 45.0
_LAST_S = 120.0


def heal(field: Field) -> str:
    """Bring a field to rest; return why it cannot be, empty when it can."""
    field.ended()
    lookout = Lookout(field.context)
    report: LagReport | None = None
    for turn in range(_ROUNDS):
        field.headrace("up")
        patience = _LAST_S if turn == _ROUNDS - 1 else _PATIENCE_S
        waited = lookout.wait(shows_all_since(time.monotonic()), timeout=patience, give_up=patience)
        if waited.done:
            return ""
        report = waited.report
        remedies = list(dict.fromkeys(_remedies(report))) if report else []
        if not remedies:
            field.log(f"not in sync, and no remedy is told: {behind(report)}")
        for remedy in remedies:
            field.log(f"remedy: {remedy}")
            _carry_out(field, remedy)
    return behind(report)


def _remedies(report: LagReport) -> Iterator[str]:
    told: list[TableLag] = [table for table in report.tables if table.remedy]
    yield from (source.remedy for source in report.sources if source.remedy)
    yield from (sink.remedy for sink in report.sinks if sink.remedy)
    yield from (table.remedy for table in told)


def _carry_out(field: Field, remedy: str) -> None:
    """Run a remedy as a person would."""
    statement, command = steps(remedy)
    if statement:
        try:
            field.execute(statement)
        except psycopg.Error as error:
            field.log(f"the database refuses: {error}")
    if command:
        if field.headrace(*command):
            field.log(f"remedy failed: {remedy}")
    elif not statement:
        field.log(f"nobody can carry this out: {remedy}")
