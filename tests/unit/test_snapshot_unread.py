"""What a snapshot leaves out must be known before a sweep, which would empty it."""

from __future__ import annotations

from typing import cast

import pytest

from headrace.control.arrived import unarrived
from headrace.control.kafka import Kafka
from headrace.control.snapshot import Snapshot, SnapshotState, told_by
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

READ = "the connector has read"
TABLES = ("public.orders", "public.a b")


@pytest.mark.parametrize(
    ("state", "scanned", "trouble", "unread"),
    [
        (SnapshotState.COMPLETED, {"public.orders": 3, "public.a b": 0}, {}, {}),
        (SnapshotState.COMPLETED, {"public.orders": 3}, {}, {"public.a b": "not read"}),
        (SnapshotState.RUNNING, {"public.orders": 3}, {}, {}),
        (SnapshotState.RUNNING, {"public.orders": 0}, {"public.orders": "SQL_EXCEPTION"},
         {"public.orders": "SQL_EXCEPTION"}),
        (SnapshotState.COMPLETED, {}, {"public.orders": "UNKNOWN_SCHEMA"},
         {"public.orders": "UNKNOWN_SCHEMA", "public.a b": "not read"}),
    ],
)  # fmt: skip
def test_a_table_passed_over_is_unread(
    state: SnapshotState, scanned: dict[str, int], trouble: dict[str, str], unread: dict[str, str]
) -> None:
    assert Snapshot(state, scanned, trouble).unread(TABLES) == unread


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        ("", SnapshotState.PENDING),
        ("STARTED IN_PROGRESS", SnapshotState.RUNNING),
        ("STARTED TABLE_SCAN_COMPLETED COMPLETED", SnapshotState.COMPLETED),
        ("STARTED COMPLETED SKIPPED", SnapshotState.COMPLETED),
        ("STARTED SKIPPED", SnapshotState.PASSED_OVER),
        ("SKIPPED", SnapshotState.PASSED_OVER),
        ("STARTED SKIPPED STARTED", SnapshotState.RUNNING),
        ("STARTED STARTED COMPLETED", SnapshotState.COMPLETED),
    ],
)
def test_only_a_snapshot_that_was_completed_counts(kinds: str, state: SnapshotState) -> None:
    assert told_by({"type": kind} for kind in kinds.split()).state is state


@pytest.mark.parametrize(
    ("scanned", "high", "wrong"),
    [
        ({"public.orders": 3}, 4, ""),
        ({"public.orders": 0}, 0, ""),
        (
            {"public.orders": 3},
            2,
            "the connector has read 3 rows of it, and 2 records have come into its topic",
        ),
        ({"public.Orders": 3}, 4, "the connector has not read it: it does not find a table of that name"),
    ],
)
def test_rows_that_were_read_and_went_elsewhere_are_told(
    scanned: dict[str, int], high: int, wrong: str
) -> None:
    class Topics:
        def ends(self, names: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
            return {(name, 0): (0, high) for name in names}

    schema = TableSchema(TableId("public", "orders"), (Column("id", LogicalType.INT32),), ("id",))
    tables = source_entry("shop", [schema]).tables
    found = unarrived(cast("Kafka", Topics()), tables, Snapshot(SnapshotState.COMPLETED, scanned, {}))
    assert found == ({"shop.public.orders": wrong} if wrong else {})
