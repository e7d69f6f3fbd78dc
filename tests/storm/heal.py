"""After a storm: carry out the remedies as they are printed, until everything is in sync or none helps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import psycopg

from headrace.control.lag import LagReport
from headrace.demo.lookout import Lookout, behind, shows_all_since
from tests.storm.field import Field
from tests.support.remedy import steps

__all__ = ["Where", "heal", "useless"]

Where = tuple[str, ...]
"""A source, a sink, or a table of a sink: where a remedy is told."""


_ROUNDS = 6
_PATIENCE_S = 45.0
_LAST_S = 120.0


def heal(field: Field) -> str:
    """Bring a field to rest; return why it cannot be, empty when it can."""
    field.ended()
    lookout = Lookout(field.context)
    report: LagReport | None = None
    failed: dict[Where, str] = {}
    for turn in range(_ROUNDS):
        field.headrace("up")
        patience = _LAST_S if turn == _ROUNDS - 1 else _PATIENCE_S
        waited = lookout.wait(shows_all_since(time.monotonic()), timeout=patience, give_up=patience)
        report = waited.report
        told = dict(_remedies(report)) if report else {}
        field.useless += useless(failed, told)
        if waited.done:
            return ""
        if not told:
            field.log(f"not in sync, and no remedy is told: {behind(report)}")
        failed = {}
        for remedy in dict.fromkeys(told.values()):
            field.log(f"remedy: {remedy}")
            if not _carry_out(field, remedy):
                field.log(f"remedy failed: {remedy}")
                if field.is_up:
                    failed |= {place: remedy for place, said in told.items() if said == remedy}
    return behind(report)


def useless(failed: Mapping[Where, str], told: Mapping[Where, str]) -> list[str]:
    """Return the remedies that failed somewhere, and that are told there once more.

    Args:
        failed: Where a remedy failed while every server answered, and which.
        told: What is told after that.
    """
    again = {place: remedy for place, remedy in failed.items() if told.get(place) == remedy}
    return [f"{' '.join(place)}: {remedy}" for place, remedy in again.items()]


def _remedies(report: LagReport) -> Iterator[tuple[Where, str]]:
    yield from (((source.source,), source.remedy) for source in report.sources if source.remedy)
    yield from (((sink.source, sink.sink), sink.remedy) for sink in report.sinks if sink.remedy)
    tables = [table for table in report.tables if table.remedy]
    yield from (((table.source, table.sink, table.table), table.remedy) for table in tables)


def _carry_out(field: Field, remedy: str) -> bool:
    """Run a remedy as a person would; return whether its statement and its command ended well."""
    statement, command = steps(remedy)
    is_well = True
    if statement:
        try:
            field.paste(statement)
        except psycopg.errors.LockNotAvailable as error:
            field.log(
                f"the database lets it wait no longer: {error}"
            )  # it says itself that it may be tried again
        except psycopg.Error as error:
            field.log(f"the database refuses: {error}")
            is_well = False
    if command:
        is_well = not field.headrace(*command) and is_well
    elif not statement:
        field.log(f"nobody can carry this out: {remedy}")
    return is_well
