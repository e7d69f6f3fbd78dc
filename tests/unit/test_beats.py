"""Heartbeats, among which marks lie."""

from __future__ import annotations

from connectors.registry import newest_beat
from headrace.control.beats import told_otherwise

WRONG = {"after": {"id": 1, "specimen_interval": "P0Y0M0DT0H0M0S"}}
RIGHT = {"after": {"id": 1, "specimen_interval": "P1Y2M3DT4H5M6.789012S"}}
MARK = {"after": {"id": 2}}


def test_a_mark_hides_no_heartbeat_and_the_newest_counts() -> None:
    assert newest_beat("postgres", [RIGHT, WRONG, MARK]) == [WRONG]
    assert "values of interval as others" in told_otherwise("postgres", [WRONG])
    assert told_otherwise("postgres", newest_beat("postgres", [WRONG, RIGHT, MARK])) == ""
    assert newest_beat("postgres", [MARK]) == []
