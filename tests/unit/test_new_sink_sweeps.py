"""A sink that was just added takes back what it was noted to lack, and nothing that was found since."""

from __future__ import annotations

import pytest

from headrace.control import sweeps
from headrace.control.context import Context
from headrace.control.registry import Registry, ResnapshotEntry, SinkEntry
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

SCHEMAS = [
    TableSchema(TableId("public", name), (Column("id", LogicalType.INT32),), ("id",)) for name in ("t", "u")
]
TOPICS = ["shop.public.t", "shop.public.u"]


def run() -> ResnapshotEntry:
    marks = {topic: [10] for topic in TOPICS}
    return ResnapshotEntry(
        id="a",
        source="shop",
        phase="completed",
        begun_ms=1,
        ended_ms=2,
        error=None,
        asked_ms=1,
        plan={"topics": TOPICS, "marks": marks, "ends": {topic: [15] for topic in TOPICS}},
        counts={},
    )


@pytest.mark.parametrize("set_back", [False, True])
def test_what_is_found_lacking_while_it_sweeps_stays_lacking(
    context: Context, monkeypatch: pytest.MonkeyPatch, set_back: bool
) -> None:
    registry = Registry(context.registry)
    with registry.begin() as session:
        session.add(source_entry("shop", SCHEMAS, loaded_ms=2))
        session.flush()
        session.add(run())
    noted = registry.moment("shop")
    entry = SinkEntry(
        name="cache",
        kind="memory",
        source="shop",
        settings={},
        tables={topic: {} for topic in TOPICS},
        incomplete=dict.fromkeys(TOPICS, 10),
        incomplete_ms=dict.fromkeys(TOPICS, noted),
        on_schema_change="lenient",
        created_ms=1,
    )
    with registry.begin() as session:
        session.add(entry)
    if set_back:
        monkeypatch.setattr("headrace.control.registry.now_ms", lambda: noted - 60_000)

    def swept(*_: object) -> None:
        if "u" not in found:
            found.append("u")
            registry.incomplete("cache", {TOPICS[1]: 20})  # of columns that have come meanwhile

    found: list[str] = []
    monkeypatch.setattr(sweeps, "ask_sweep", swept)
    monkeypatch.setattr(sweeps, "wait_settled", lambda *_, **__: None)
    sweeps.sweep_new_sink(context, registry, entry, registry.source("shop").tables, print)
    assert registry.sink("cache").incomplete == {TOPICS[1]: 20}
