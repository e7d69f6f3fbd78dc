"""Changes that a store puts off are asked for again, for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from headrace.model.change import Change
from headrace.model.errors import SinkUnavailable
from headrace.model.outcome import Deferred, Outcome
from headrace.model.schema import TableSchema
from headrace.observe.failpoints import hit
from sinks.base import Sink

__all__ = ["patiently"]

_MAX_TRIES = 6


def patiently(sink: Sink, schema: TableSchema, changes: list[Change]) -> Iterator[tuple[Change, Outcome]]:
    """Apply, asking again for what the store deferred, with backoff and jitter.

    Raises:
        SinkUnavailable: When the store still defers after the last try. It is about the table alone when it
            defers only what somebody else writes (``SINK_ROWS_CONTENDED``).
    """
    reason, contended = "", True
    for attempt in range(_MAX_TRIES):
        hit("apply.before_write", sink.kind)
        outcomes = sink.apply(schema, changes)
        hit("apply.after_write", sink.kind)
        waiting: list[Change] = []
        wait, contended = 0.0, True
        for change, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, Deferred):
                waiting.append(change)
                reason = outcome.reason
                wait = max(wait, outcome.retry_after)
                contended &= outcome.of_row
            else:
                yield change, outcome
        if not waiting:
            return
        changes = waiting
        time.sleep(max(wait, 0.05 * 2**attempt) * random.uniform(0.8, 1.2))  # noqa: S311
    if contended:
        raise SinkUnavailable(
            f"Somebody else writes {len(changes)} rows of {schema.table} all the time: {reason}",
            code="SINK_ROWS_CONTENDED",
            hint="Let nobody else write them; the table's changes wait, and are tried again.",
            table=schema.table,
        )
    raise SinkUnavailable(
        f"The store deferred {len(changes)} changes of {schema.table} {_MAX_TRIES} times: {reason}",
        code="SINK_DEFERS",
        hint="It is overloaded; the batch is tried again.",
    )
