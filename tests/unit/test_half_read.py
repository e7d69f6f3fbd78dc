"""Up to where a table that is half read is sent, by what the connector has told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors.base import Capture
from headrace.control.kafka import Kafka
from headrace.control.snapshot import Told

INITIAL, BESIDE = "Initial Snapshot", "Incremental Snapshot"


def part(key: object, signal: str = "run", table: str = "public.t") -> dict[str, Any]:
    said = {"current_collection_in_progress": table, "last_processed_key": str(key)}
    return {"aggregate_type": BESIDE, "type": "IN_PROGRESS", "id": signal, "additional_data": said}


def word(kind: str, about: str = BESIDE) -> dict[str, Any]:
    return {"aggregate_type": about, "type": kind, "id": "run"}


@pytest.mark.parametrize(
    ("told", "sent"),
    [
        ([word("STARTED"), part(10)], {}),
        ([part(10), part(20), part(30)], {"public.t": ("20", 2)}),
        ([part(10), part(20), word("PAUSED"), word("ABORTED")], {"public.t": ("10", 1)}),
        # What has rested may read its last part once more.
        ([part(10), part(20), word("PAUSED"), word("RESUMED"), part(20)], {"public.t": ("10", 1)}),
        ([part(10), part(20), word("PAUSED"), word("RESUMED"), part(19), part(30)], {"public.t": ("19", 3)}),
        ([part(10), part(20), word("PAUSED"), word("RESUMED"), part(30), part(40)], {"public.t": ("30", 3)}),
        # As it does when the table's columns change.
        ([part(10), part(20), part(20)], {"public.t": ("10", 1)}),
        ([part("7,1"), part("7,9"), part("8,2"), part("9,1")], {"public.t": ("8", 3)}),
        # Of a key of several columns its first value counts; that of the last part is not sent whole.
        ([part(7), part(7), part(7), part(8), part(9)], {"public.t": ("8", 4)}),
        (
            [part(7), part(7), word("PAUSED"), word("RESUMED"), part(7), part(8), part(9)],
            {"public.t": ("8", 3)},
        ),
        # What reads on after a change of columns may go back to before it.
        ([part(10), part(20), part(30), part(20)], {"public.t": ("10", 1)}),
        ([word("STARTED"), word("SKIPPED", INITIAL), part(30), part(5)], {}),
        ([word("STARTED", INITIAL), part(10), part(20)], {"public.t": ("10", 1)}),
        # What was started anew begins further before.
        ([part(10), part(20), part(30), word("SKIPPED", INITIAL)], {}),
        ([part(10), part(20), word("SKIPPED", INITIAL), part(20)], {}),
        ([part(10), part(20, "another"), part(5, table="public.u")], {}),
    ],
)
def test_a_part_is_sent_when_the_next_one_is_read(
    told: list[dict[str, Any]], sent: dict[str, tuple[str, int]]
) -> None:
    kafka = SimpleNamespace(committed=lambda _topic, since: (told[since:], len(told)))
    capture = Capture("shop", (), "placeholder", "password")
    assert Told(cast("Kafka", kafka), capture, 0).sent("run", lambda _, key: key.split(",")[0]) == sent
