"""Connect is asked for a connector's position when something follows from it; else what it said stays."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.control import gap
from headrace.control.connect import Connect, ConnectorState
from headrace.control.registry import Registry
from sinks.contract.story import ORDERS
from tests.support.entries import source_entry
from tests.support.registered import lonely
from tests.unit.test_control_history import hold_of


class _Asked:
    def __init__(self) -> None:
        self.times = 0

    def offset(self, _name: str) -> dict[str, Any]:
        self.times += 1
        return {"lsn": 950}


@pytest.mark.parametrize(
    ("state", "acts", "times", "read"),
    [
        (ConnectorState("RUNNING", "RUNNING", ""), False, 0, 900),
        (ConnectorState("RUNNING", "RUNNING", ""), True, 1, 950),
        (ConnectorState("PAUSED", "PAUSED", ""), False, 1, 950),
    ],
)
def test_the_position_is_asked_for_where_it_counts(
    state: ConnectorState,
    acts: bool,
    times: int,
    read: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gap, "keep_fence", lambda *_: None)
    context, connect = lonely(tmp_path), _Asked()
    registry = Registry(context.registry)
    seen = {"timeline": 1, "flushed": 1000, "read": 900}
    with registry.begin() as session:
        session.add(source_entry("shop", [ORDERS], loaded_ms=2, **seen))
    entry, hold = registry.source("shop"), hold_of(1010)
    assert not gap.gap_between(context, cast("Connect", connect), entry, hold, state, acts=acts)
    now = registry.source("shop")
    assert (connect.times, now.flushed, now.read) == (times, 1010, read)


@pytest.mark.parametrize(("seen", "ends", "back"), [(930, 960, False), (930, 940, True), (1000, 1010, True)])
def test_a_log_that_has_grown_since_it_was_looked_at_did_not_go_back(
    seen: int, ends: int, back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connector may deliver what is written then, and come to rest before Connect is asked.

    What was seen before that look is proof, however much is written since.
    """
    monkeypatch.setattr(gap, "source_of", lambda *_: SimpleNamespace(hold=lambda _: hold_of(ends)))
    context, registry = lonely(tmp_path), Registry(lonely(tmp_path).registry)
    with registry.begin() as session:
        session.add(source_entry("shop", [ORDERS], loaded_ms=2, timeline=1, flushed=seen, read=900))
    connect, state = cast("Connect", _Asked()), ConnectorState("PAUSED", "PAUSED", "")
    told = gap.gap_between(context, connect, registry.source("shop"), hold_of(940), state, acts=False)
    assert ("restored to an earlier state" in told) if back else not told
