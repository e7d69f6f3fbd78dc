"""A table whose target at one sink takes no part in a recovery: which, why, and what mends it afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.control.registry import Registry, SourceEntry, SourceTableEntry
from headrace.control.remedies import read_anew
from headrace.control.verdicts import LEFT_OUT, State, Verdict, record
from headrace.model.errors import Retry, SinkError

__all__ = ["LeftOut", "Why", "left_out", "refusal", "tell", "why"]

Why = tuple[str, str]
"""Code and message of what is wrong."""

_TRIES = 4
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A table that a sink does not hold as the database does.

    Args:
        sink, table: Which.
        code, reason: What is wrong with its target.
        remedy: The command that makes it right.
    """

    sink: str
    table: str
    code: str
    reason: str
    remedy: str


def why(error: SinkError) -> Why:
    """Return what an error says is wrong."""
    return error.code, error.message


def refusal(work: Callable[[], object]) -> Why | None:
    """Do some work on one table's target; return why the target refuses it, None when it does not.

    Raises:
        SinkError: When it is not the target alone that refuses.
    """
    for left in reversed(range(_TRIES)):
        try:
            work()
        except SinkError as error:
            if error.table is None:
                raise
            if not left or error.retry is not Retry.LATER:
                return why(error)
            time.sleep(_PAUSE_S)
        else:
            return None
    return None


def left_out(source: SourceEntry, sink: str, table: SourceTableEntry, said: Why) -> LeftOut:
    """Return a table that is left out, with what mends it."""
    code, reason = said
    return LeftOut(sink, str(table.schema.table), code, reason, read_anew(source, [table.schema]))


def tell(registry: Registry, source: SourceEntry, found: LeftOut) -> None:
    """Have status say so until a run has filled a target anew."""
    topic = next(table.topic for table in source.tables if str(table.schema.table) == found.table)
    reason = f"the recovery of {source.name} has left it out: {found.reason}"
    verdict = Verdict(State.RESYNC_REQUIRED, reason, found.remedy)
    record(registry, source, [topic], LEFT_OUT, verdict, sink=found.sink)
