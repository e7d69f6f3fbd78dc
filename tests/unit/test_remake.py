"""A pipeline file that is damaged is written anew with what the sink has been through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.config.pipeline import load_pipeline
from headrace.control.context import Context
from headrace.control.pipelines import pipeline_of, spec_path
from headrace.control.registry import Registry, ResnapshotEntry, SinkEntry
from headrace.control.remake import remake_damaged
from headrace.control.verdicts import FIRST_LOAD, REMADE, State, Verdict, over, record, standing
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

SCHEMA = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32),), ("id",))
TOPIC = "shop.public.t"


def run(name: str, mark: int, *, swept: str = "", ended_ms: int = 90) -> ResnapshotEntry:
    return ResnapshotEntry(
        id=name,
        source="shop",
        phase="completed",
        begun_ms=mark,
        ended_ms=ended_ms,
        error=None,
        asked_ms=mark,
        plan={"topics": [TOPIC], "marks": {TOPIC: [mark]}, "ends": {TOPIC: [mark + 5]}},
        counts={"swept": {swept: {"public.t": 0}}} if swept else {},
    )


@pytest.fixture
def registry(context: Context) -> Registry:
    found = Registry(context.registry)
    with found.begin() as session:
        session.add(source_entry("shop", [SCHEMA], epoch=4, loaded_ms=2))
    return found


def sink(registry: Registry, **changes: Any) -> SinkEntry:
    known: dict[str, Any] = {
        "name": "cache",
        "kind": "memory",
        "source": "shop",
        "settings": {},
        "tables": {TOPIC: {}},
        "on_schema_change": "lenient",
        "created_ms": 50,
        "incomplete": {},
        "incomplete_ms": {},
    }
    with registry.begin() as session:
        session.add(SinkEntry(**{**known, **changes}))
    return registry.sink("cache")


def remade(context: Context, registry: Registry, entry: SinkEntry) -> bool:
    return remake_damaged(context, registry, entry, registry.source("shop").tables)


def test_it_goes_on_with_its_target_and_the_marks_of_its_own_sweeps(
    context: Context, registry: Registry
) -> None:
    entry = sink(registry)
    with registry.begin() as session:
        session.add_all([run("a", 10, swept="cache"), run("b", 20, swept="another")])
    (context.checkpoints / "cache").mkdir(parents=True)
    identities = {f"{TOPIC}@4.0": "i", f"{TOPIC}@4.2": "k", f"{TOPIC}@3.7": "of an earlier life"}
    kept = {"identities": identities, "refilled": []}
    (context.checkpoints / "cache" / "targets.json").write_text(json.dumps(kept))
    path = spec_path(context, "cache")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert remade(context, registry, entry)
    spec = load_pipeline(path)
    assert (spec.tables[0].target, spec.tables[0].epoch, spec.paused) == (2, 4, False)
    # A later run has swept another sink only: what it found gone may be left at this one.
    assert (spec.swept[TOPIC].marks, spec.swept[TOPIC].ends) == ((10,), (15,))
    assert standing(registry, "shop") == []
    whole = path.read_bytes()
    assert not remade(context, registry, entry)
    assert path.read_bytes() == whole


def test_one_that_lacks_a_table_is_an_older_one(context: Context, registry: Registry) -> None:
    """But for a table that a command is taking in, which tells the query of it a little later."""
    entry, origin = sink(registry), registry.source("shop")
    path = spec_path(context, "cache")
    path.parent.mkdir(parents=True)
    path.write_text(pipeline_of(context, origin, entry, []).model_dump_json())
    told = Verdict(State.SNAPSHOTTING, "being taken in", "")
    record(registry, origin, [TOPIC], FIRST_LOAD, told)
    assert not remade(context, registry, entry)
    over(registry, "shop", TOPIC, FIRST_LOAD)
    assert remade(context, registry, entry)
    assert [table.topic for table in load_pipeline(path).tables] == [TOPIC]


@pytest.mark.parametrize(("incomplete", "marks"), [({}, (10,)), ({TOPIC: 10}, None)])
def test_runs_of_before_the_sink_count_when_it_has_passed_them(
    context: Context, registry: Registry, incomplete: dict[str, int], marks: tuple[int, ...] | None
) -> None:
    entry = sink(registry, incomplete=incomplete, on_schema_change="ignore")
    with registry.begin() as session:
        session.add(run("a", 10, swept="another", ended_ms=40))
    path = spec_path(context, "cache")
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert remade(context, registry, entry)
    found = load_pipeline(path).swept.get(TOPIC)
    assert (found.marks if found else None) == marks
    # Which columns a sink has that ignores their changes, nobody knows any more.
    assert [verdict.code for verdict in standing(registry, "shop")] == [REMADE]
