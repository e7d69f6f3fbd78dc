"""Observations of an installation in which all is well, of which tests change what they are about."""

from __future__ import annotations

from typing import Any

from connectors.base import Hold
from headrace.control.connect import ConnectorState
from headrace.control.observation import SinkSeen, SourceSeen
from headrace.control.progress import SinkProgress, TableProgress
from headrace.control.registry import SinkEntry, SourceEntry, SourceTableEntry, VerdictEntry
from headrace.model.schema import Column, LogicalType, TableId, TableSchema

__all__ = ["NOW", "PROGRESS", "RUNNING", "SINK", "SOURCE", "TOPIC", "hold", "observed_source", "verdict"]

NOW = 1_800_000_000_000
TOPIC = "shop.public.orders"
RUNNING = ConnectorState("RUNNING", "RUNNING", "")


def _schema() -> TableSchema:
    return TableSchema(TableId("public", "orders"), (Column("id", LogicalType.INT64),), ("id",))


def observed_source() -> SourceEntry:
    table = SourceTableEntry(
        source="shop", topic=TOPIC, place=0, topic_id="t1", epoch=3, table=_schema().as_dict()
    )
    return SourceEntry(
        name="shop",
        kind="postgres",
        address="postgresql://db/shop",
        placeholder="__x",
        settings={"heartbeat_ms": 1000},
        system="77",
        created_ms=NOW - 90_000,
        loaded_ms=NOW - 80_000,
        gap=None,
        tables=[table],
    )


def hold(**changes: Any) -> Hold:
    known: dict[str, Any] = {
        "exists": True,
        "active": True,
        "lost": "",
        "confirmed": 500,
        "held_bytes": 100,
        "unconfirmed_bytes": 10,
        "spare_bytes": None,
        "system": "77",
        "now_ms": NOW,
    }
    return Hold(**{**known, **changes})


SOURCE = SourceSeen(
    entry=observed_source(),
    connector=RUNNING,
    hold=hold(),
    loaded=True,
    gap="",
    beat_ms=NOW - 500,
    ends={(TOPIC, 0): (0, 1000)},
    topic_ids={TOPIC: "t1"},
    now_ms=NOW,
    unwatched_s=1.0,
)
PROGRESS = SinkProgress(
    state="running",
    error=None,
    updated_ms=NOW - 200,
    first_row_ms=NOW - 70_000,
    next_offsets={(TOPIC, 0): 1000},
    tables={"public.orders": TableProgress(applied=1000, last_commit_ms=NOW - 60_000)},
    latency_ms={"p50": 150, "p99": 300, "count": 10},
    checked_ms=NOW - 400,
)
SINK = SinkSeen(
    entry=SinkEntry(
        name="search",
        kind="elasticsearch",
        source="shop",
        settings={},
        tables={TOPIC: {"alias": "shop-public-orders"}},
        incomplete={},
        on_schema_change="lenient",
        created_ms=NOW - 70_000,
    ),
    paused=False,
    progress=PROGRESS,
    engine="ready",
    following={},
    now_ms=NOW,
)


def verdict(**changes: Any) -> VerdictEntry:
    known: dict[str, Any] = {
        "source": "shop",
        "topic": TOPIC,
        "sink": "",
        "code": "TYPE",
        "state": "resync_required",
        "reason": "the type of amount has changed",
        "remedy": "headrace resnapshot shop public.orders",
        "first_ms": NOW,
        "last_ms": NOW,
        "healed": {},
    }
    return VerdictEntry(**{**known, **changes})
