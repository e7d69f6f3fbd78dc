"""Changes of one small table, through collapse and apply into the reference sink."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from headrace.model.change import Change, Op, Origin, Record
from headrace.model.key import Key
from headrace.model.position import Position
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.base import Sink
from sinks.memory import MemorySink
from spark_jobs.apply import apply_records
from spark_jobs.carry import Carry, NoCarry
from spark_jobs.held import Holds
from spark_jobs.report import Report
from spark_jobs.tables import Tables

__all__ = ["NOTHING_CARRIED", "SCHEMA", "TABLE", "TABLES", "apply", "change", "sink", "state"]

TABLE = TableId("public", "t")
SCHEMA = TableSchema(
    TABLE,
    (Column("id", LogicalType.INT64), Column("a", LogicalType.TEXT), Column("b", LogicalType.TEXT)),
    ("id",),
)

TABLES = Tables({TABLE: SCHEMA}, {"t": (TABLE, 1)})
NOTHING_CARRIED = NoCarry()


def change(
    offset: int, key: int, op: Op = Op.UPSERT, absent: frozenset[str] = frozenset(), **row: Any
) -> Change:
    full: dict[str, Any] = {}
    if op is Op.UPSERT:
        full = {
            n: v
            for n, v in {"id": key, "a": f"a{offset}", "b": f"b{offset}", **row}.items()
            if n not in absent
        }
    return Change(
        TABLE,
        Key.of([str(key)]),
        op,
        full,
        absent,
        Position(1, offset),
        Origin("t", 0, offset, committed_ms=1),
    )


def sink() -> MemorySink:
    made = MemorySink("m", MemorySink.Config(store=uuid.uuid4().hex))
    made.prepare(SCHEMA)
    return made


def apply(
    records: Iterable[Record], target: Sink, carry: Carry = NOTHING_CARRIED, holds: Holds | None = None
) -> Report:
    return apply_records(records, target, TABLES, carry, holds or Holds())


def state(of: MemorySink) -> dict[str, dict[str, Any]]:
    return {stored.key: dict(stored.row) for stored in of.scan(SCHEMA)}
