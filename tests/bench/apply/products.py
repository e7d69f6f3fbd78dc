"""What is applied: a shop's products, first all new, then all changed, then a quarter of them deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from headrace.demo import words
from headrace.demo.stock import sku
from headrace.model.change import Change, Op, Origin
from headrace.model.position import Position
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from headrace.model.values import date_days, key_of

__all__ = ["BATCH", "PHASES", "SCHEMA", "Batches", "batches"]

_L = LogicalType

SCHEMA = TableSchema(
    TableId("public", "products"),
    (
        Column("sku", _L.TEXT, nullable=False),
        Column("category_id", _L.INT32, nullable=False),
        Column("name", _L.TEXT, nullable=False),
        Column("description", _L.TEXT),
        Column("price", _L.NUMERIC, native="numeric(12,2)", precision=12, scale=2),
        Column("weight", _L.NUMERIC, native="numeric"),
        Column("stock", _L.INT32, nullable=False),
        Column("attributes", _L.JSON, nullable=False),
        Column("tags", _L.TEXT, dimensions=1),
        Column("active", _L.BOOLEAN, nullable=False),
        Column("released", _L.DATE),
        Column("updated_at", _L.TIMESTAMPTZ, nullable=False),
    ),
    ("sku",),
)

PHASES = ("insert", "update", "delete")

BATCH = 5_000
"""As many changes as the engine hands over at once."""

_COMMITTED_MS = 1_767_600_000_000

Batches = Mapping[str, list[list[Change]]]
"""Phase → its changes, cut as the engine cuts them."""


def _row(rng: Random, number: int) -> dict[str, Any]:
    day = words.day(rng, 1990, 2026)
    return {
        "sku": sku(number),
        "category_id": rng.randint(1, 60),
        "name": words.sentence(rng, 3),
        "description": words.sentence(rng, 12) if rng.random() < 0.85 else None,
        "price": str(words.cents(rng, 900)),
        "weight": str(words.digits(rng)) if rng.random() < 0.9 else None,
        "stock": rng.randint(0, 500),
        "attributes": json.dumps(words.document(rng), ensure_ascii=False),
        "tags": words.picked(rng, 4),
        "active": rng.random() < 0.9,
        "released": date_days(day.isoformat()),
        "updated_at": f"2026-01-05T{number % 24:02d}:{number % 60:02d}:07.{rng.randrange(1_000_000):06d}Z",
    }


def _changes(rng: Random, rows: int) -> Iterator[tuple[str, Change]]:
    offset = 0
    for phase in PHASES:
        numbers = (
            range(1, rows + 1) if phase != "delete" else sorted(rng.sample(range(1, rows + 1), rows // 4))
        )
        for number in numbers:
            row = _row(rng, number)
            key = key_of(SCHEMA, row)
            origin = Origin(
                "bench.public.products", 0, offset, 2**34 + 97 * offset, offset // 7, _COMMITTED_MS
            )
            op = Op.DELETE if phase == "delete" else Op.UPSERT
            kept = {} if op is Op.DELETE else row
            yield phase, Change(SCHEMA.table, key, op, kept, frozenset(), Position(0, offset), origin)
            offset += 1


def batches(rows: int) -> Batches:
    """Return the changes of each phase, the same at every call."""
    by_phase: dict[str, list[Change]] = {phase: [] for phase in PHASES}
    for phase, change in _changes(Random(rows), rows):
        by_phase[phase].append(change)
    return {
        phase: [changes[start : start + BATCH] for start in range(0, len(changes), BATCH)]
        for phase, changes in by_phase.items()
    }
