"""When the database counts as another than the one that was followed."""

from __future__ import annotations

import pytest

from connectors.base import Hold
from headrace.control.connect import ConnectorState
from headrace.control.history import moved, not_proven, went_back
from headrace.control.registry import SourceEntry


def _entry(**seen: int | None) -> SourceEntry:
    return SourceEntry(name="shop", **{"timeline": 1, "flushed": 1000, "read": 900, **seen})


def hold_of(
    flushed: int | None, timeline: int | None = 1, *, confirmed: int = 0, left: int | None = None
) -> Hold:
    return Hold(
        exists=True,
        active=True,
        lost="",
        confirmed=confirmed,
        held_bytes=0,
        unconfirmed_bytes=0,
        spare_bytes=None,
        system="1",
        now_ms=0,
        flushed=flushed,
        timeline=timeline,
        ancestry={} if left is None else {1: left},
    )


@pytest.mark.parametrize(
    ("hold", "read", "at_rest", "said"),
    [
        (hold_of(1000), 1000, False, ""),
        (hold_of(1001), 1200, False, ""),  # it was asked before the connector, which reads on
        (hold_of(1001), 1200, True, "earlier state"),
        (hold_of(999), 900, False, "earlier state"),
        (hold_of(None, None), 900, True, ""),  # a standby says nothing
    ],
)
def test_a_database_that_went_back_is_told_from_one_that_did_not(
    hold: Hold, read: int | None, at_rest: bool, said: str
) -> None:
    found = went_back(_entry(), hold, read, at_rest=at_rest)
    assert said in found if said else not found


@pytest.mark.parametrize(
    ("hold", "read", "said"),
    [
        (hold_of(2000, 2), 900, "does not tell where"),
        (hold_of(2000, 2, left=950), 900, ""),
        (hold_of(940, 2, left=930), 900, ""),  # what was written and never delivered is nobody's loss
        (hold_of(2000, 2, left=890), 900, "not proven"),
        (hold_of(2000, 2, left=950), None, "not proven"),
        (hold_of(2000, 2, left=950, confirmed=940), 900, "40 bytes after"),
    ],
)
def test_another_timeline_has_all_that_was_delivered_or_it_is_not_proven(
    hold: Hold, read: int | None, said: str
) -> None:
    assert moved(_entry(), hold)
    found = not_proven(_entry(), hold, read)
    assert said in found if said else not found


def test_what_was_never_seen_is_no_reason() -> None:
    fresh = _entry(timeline=None, flushed=None, read=None)
    assert not moved(fresh, hold_of(10, 7))
    assert went_back(fresh, hold_of(10, 7), None, at_rest=False) == ""


@pytest.mark.parametrize(
    ("connector", "task", "at_rest"),
    [
        ("RUNNING", "RUNNING", False),
        ("PAUSED", "PAUSED", True),
        ("STOPPED", "ABSENT", True),
        ("RUNNING", "FAILED", True),
        ("ABSENT", "ABSENT", False),
        ("RUNNING", "UNASSIGNED", False),
        ("UNASSIGNED", "ABSENT", False),
    ],
)
def test_a_worker_that_is_starting_is_not_asked_where_it_was(
    connector: str, task: str, at_rest: bool
) -> None:
    assert ConnectorState(connector, task, "").at_rest is at_rest
