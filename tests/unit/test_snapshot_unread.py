"""What a snapshot leaves out must be known before a sweep, which would empty it."""

from __future__ import annotations

import pytest

from headrace.control.snapshot import Snapshot, SnapshotState, told_by

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
