"""In which columns and in which order the rows of a run's tables are read, and whether they still are.

The plan of a run keeps both as they were when the connector was asked. A column that goes ends the reading of
a chunk, or moves the values behind it to other columns. In another order some rows come before what is read,
and came after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from connectors.base import Capture, Source
from connectors.registry import goes_on_after
from headrace.control.capture import capture_now, settings_of
from headrace.control.registry import SourceTableEntry
from headrace.control.runs.job import Job
from headrace.model.errors import SourceError

__all__ = ["columns_now", "orders_now", "read_otherwise", "sent_now"]

_Sent = dict[str, tuple[str, int]]
"""Topic → the first value of the last key that is sent, and about how many rows were sent up to it."""
_Orders = dict[str, list[Any]]
"""Topic → the key, and how Postgres orders rows by it."""
_OF_ONE_TABLE = ("SOURCE_TABLE_MISSING", "SOURCE_NO_PRIMARY_KEY")
"""Codes of a table that cannot be described; reading once more would not mend that."""


def columns_now(job: Job, source: Source, capture: Capture) -> dict[str, list[str]]:
    """Return topic → the columns that a table has.

    Raises:
        SourceError: When a table is gone or has no key, and as :func:`read_otherwise` does.
    """
    return _columns(_described(job, source, capture))


def orders_now(
    job: Job, source: Source, capture: Capture, wanted: Sequence[SourceTableEntry]
) -> tuple[_Orders, _Sent]:
    """Return what the plan has to say when the connector is asked for tables from here on.

    Of tables that were asked for before, and are read, the order stays that one: the run compares it when all
    is read.

    Args:
        job: The run.
        source: Its database.
        capture: What is captured of it.
        wanted: The tables that the connector is asked for now.

    Returns:
        In which order rows are read, and what is sent of those tables that were read so until now.

    Raises:
        SourceError: As :func:`read_otherwise`.
    """
    now = _there(job, source, capture)
    topics, orders = {table.topic for table in wanted}, _orders(now)
    sent = {topic: one for topic, one in job.run.plan.get("sent_up_to", {}).items() if topic in topics}
    noted = {topic: order for topic, order in orders.items() if topic in topics}
    return {**job.run.plan.get("orders", {}), **noted}, _still_sent(job, now, sent)


def read_otherwise(job: Job, source: Source, capture: Capture) -> bool:
    """Return whether a table has lost a column, or has another order of rows, since the run has asked.

    Raises:
        SourceError: When the database does not answer.
    """
    columns: dict[str, list[str]] = job.run.plan.get("columns", {})
    orders: _Orders = job.run.plan.get("orders", {})
    now = _there(job, source, capture)
    there, ordered = _columns(now), _orders(now)
    lost = any(not set(names) <= set(there.get(topic, names)) for topic, names in columns.items())
    return lost or any(order != ordered.get(topic, order) for topic, order in orders.items())


def sent_now(
    job: Job,
    source: Source,
    capture: Capture,
    tables: Sequence[SourceTableEntry],
    told: Mapping[str, tuple[str, int]],
) -> _Sent:
    """Return from where on tables that are half read are to be read when the run goes on.

    A part is read once more when the columns change meanwhile; such a table is read from its beginning. So is
    one whose rows come in another order now: the connector has told a key of the former one.

    Args:
        job: The run.
        source: Its database.
        capture: What is captured of it.
        tables: Those that the connector was asked for.
        told: Table → the first value of the last key that is sent, and how many parts are.

    Returns:
        Topic → that value, and about how many rows were sent up to it.

    Raises:
        SourceError: As :func:`read_otherwise`.
    """
    sent: _Sent = dict(job.run.plan.get("sent_up_to", {}))
    now = _there(job, source, capture)
    before, there = job.run.plan.get("columns", {}), _columns(now)
    part = settings_of(job.source).snapshot_chunk_rows
    for table in tables:
        topic, end = table.topic, told.get(str(table.schema.table))
        if before.get(topic) != there.get(topic):
            sent.pop(topic, None)
        elif end is not None:
            sent[topic] = end[0], (sent[topic][1] if topic in sent else 0) + end[1] * part
    return _still_sent(job, now, sent)


def _described(job: Job, source: Source, capture: Capture) -> Capture:
    mine = tuple(table.schema for table in job.tables(job.run))
    return capture_now(source, replace(capture, tables=mine))


def _there(job: Job, source: Source, capture: Capture) -> Capture:
    """Return the run's tables as the database has them now, without those that are gone or have no key."""
    try:
        return _described(job, source, capture)
    except SourceError as error:
        if error.code not in _OF_ONE_TABLE:
            raise
    found: list[Any] = []
    for table in job.tables(job.run):
        try:
            found += capture_now(source, replace(capture, tables=(table.schema,))).tables
        except SourceError as error:
            if error.code not in _OF_ONE_TABLE:
                raise
    return replace(capture, tables=tuple(found))


def _columns(now: Capture) -> dict[str, list[str]]:
    return {
        now.topic(schema.table): [*schema.by_name, *schema.extra.get("excluded", ())] for schema in now.tables
    }


def _orders(now: Capture) -> _Orders:
    return {now.topic(schema.table): [list(schema.key), schema.extra.get("order")] for schema in now.tables}


def _still_sent(job: Job, now: Capture, sent: _Sent) -> _Sent:
    """Return what is sent of those tables that are read in the order in which they were.

    The key of a table has to be the one that is registered: by that it is asked for what comes after.
    """
    orders, before, kind = _orders(now), job.run.plan.get("orders", {}), job.source.kind
    keys = {table.topic: table.schema.key for table in job.tables(job.run)}
    told = {now.topic(schema.table): schema for schema in now.tables if goes_on_after(kind, schema)}
    same = {topic for topic, one in told.items() if keys.get(topic) == one.key}
    return {t: one for t, one in sent.items() if t in same and before.get(t) == orders[t]}
