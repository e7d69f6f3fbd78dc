"""A recovery whose new life has begun, with two sinks of stores that refuse what a test says."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest

from headrace.config.pipeline import write_private
from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry
from headrace.control.pipelines import pipeline_of, rewrite, spec_path, withhold
from headrace.control.recovery import hand_over, left_out, sweep
from headrace.control.recovery.job import Job
from headrace.control.registry import Registry, SinkEntry, SourceTableEntry, now_ms
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.life import life_of
from headrace.model.position import Position
from headrace.model.schema import TableSchema
from sinks.base import Stored
from sinks.memory import MemorySink
from sinks.registry import KINDS
from spark_jobs.apply import apply_records
from spark_jobs.held import Holds
from spark_jobs.tables import Tables
from tests.support.entries import source_entry
from tests.support.small_table import NOTHING_CARRIED, SCHEMA, TABLE, change

__all__ = [
    "DOWN",
    "NOW",
    "OTHER",
    "OTHERS",
    "TOPIC",
    "Broken",
    "NewTopics",
    "begun",
    "filled",
    "hasty",
    "opened",
    "says",
]

OTHER = TableSchema(type(TABLE)("public", "other"), SCHEMA.columns, SCHEMA.key)
TOPIC, OTHERS = "shop.public.t", "shop.public.other"
FORMER, NOW = 1, 2
"""Epochs."""

DOWN = SinkUnavailable("It does not answer.", code="DOWN", hint="Is it running?")


class Broken(MemorySink):
    """A store of which one table's target refuses some of what is asked."""

    refuses: dict[str, SinkError] = {}
    silent: set[str] = set()

    def forget(self, topics: Collection[str]) -> None:
        if self.config.store in self.silent:
            raise DOWN
        super().forget(topics)

    def _ask(self, what: str, schema: TableSchema) -> None:
        if schema.table == TABLE and what in self.refuses:
            raise self.refuses[what]

    def prepare(self, schema: TableSchema) -> None:
        self._ask("prepare", schema)
        super().prepare(schema)

    def truncate(self, schema: TableSchema, position: Position) -> int:
        self._ask("truncate", schema)
        return super().truncate(schema, position)

    def scan(self, schema: TableSchema) -> Iterator[Stored]:
        yield from super().scan(schema)
        self._ask("scan", schema)


def swept_here(context: Context, sink: str, table: SourceTableEntry, marks: Sequence[int]) -> None:
    """Do what the sink's query is asked for, which does not run."""
    stored = opened(Registry(context.registry).sink(sink))
    stored.truncate(table.schema, Position(table.epoch, *marks))


class NewTopics:
    """The beginnings and ends of topics of a new life, as Kafka tells them."""

    first = 0

    def ends(self, names: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {(name, 0): (self.first if name == TOPIC else 0, 5) for name in names}


def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for long, and no engine start."""
    monkeypatch.setitem(KINDS, "broken", f"{Broken.__module__}:{Broken.__name__}")
    monkeypatch.setattr(Broken, "refuses", {})
    monkeypatch.setattr(Broken, "silent", set())
    monkeypatch.setattr(hand_over, "ensure_engine", lambda _: None)
    monkeypatch.setattr(left_out, "_PAUSE_S", 0.0)
    monkeypatch.setattr(sweep, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(sweep, "_POLL_S", 0.01)
    monkeypatch.setattr(sweep, "ask_sweep", swept_here)
    monkeypatch.setattr(sweep, "Kafka", lambda _: NewTopics())
    monkeypatch.setattr(NewTopics, "first", 0)


def begun(context: Context) -> Job:
    """Return a recovery whose new life has begun; two sinks are stopped at the former one."""
    registry = Registry(context.registry)
    sinks = [
        SinkEntry(
            name=name,
            kind="broken",
            source="shop",
            settings={"store": uuid.uuid4().hex},
            tables={TOPIC: {}, OTHERS: {}},
            on_schema_change="lenient",
            created_ms=50,
            incomplete={},
            incomplete_ms={},
        )
        for name in ("early", "late")
    ]
    source = source_entry("shop", [SCHEMA, OTHER], epoch=FORMER, loaded_ms=2, gap="its slot is gone")
    for row in (source, *sinks):
        with registry.begin() as session:
            session.add(row)
    source = registry.source("shop")
    for entry in registry.sinks("shop"):
        spec = pipeline_of(context, source, entry, source.tables)
        write_private(spec_path(context, entry.name), spec.model_dump_json())
        withhold(context, entry.name)
        stored = opened(entry)
        for schema in (SCHEMA, OTHER):
            stored.prepare(schema)
        stored.settle({(life_of(TOPIC, "x"), 0): 7})
    plan = {"sinks": ["early", "late"], "reading_ms": now_ms(), "ends": [[TOPIC, 0, 5], [OTHERS, 0, 5]]}
    with registry.begin() as session:
        for table in registry.source("shop").tables:
            table.epoch, table.topic_id = NOW, "y"
            session.merge(table)
        session.add(RecoveryEntry(source="shop", phase="reading", begun_ms=now_ms(), plan=plan))
    return Job(context, "shop", registry, lambda _: None)


def opened(entry: SinkEntry) -> Broken:
    return Broken(entry.name, Broken.Config(**entry.settings))


def filled(job: Job, sink: str, *schemas: TableSchema) -> Broken:
    """Let a sink hold rows of the former life, and of the new life those of some tables."""
    stored = opened(job.registry.sink(sink))
    topics = {SCHEMA.table: TOPIC, OTHER.table: OTHERS}
    for epoch, schema, keys in [(FORMER, SCHEMA, 9), (FORMER, OTHER, 9), *((NOW, s, 5) for s in schemas)]:
        changes = [
            type(one)(schema.table, one.key, one.op, one.row, one.absent, Position(epoch, n), one.origin)
            for n in range(keys)
            for one in (change(n, n),)
        ]
        tables = Tables({schema.table: schema}, {"t": (schema.table, epoch)})
        assert apply_records(changes, stored, tables, NOTHING_CARRIED, Holds()).error is None
    stored.settle({(life_of(topics[schema.table], "y"), 0): 4 for schema in schemas})
    return stored


def says(job: Job, sink: str, troubles: dict[str, dict[str, Any]], behind: int = 0) -> None:
    """Let the engine say how the tables do; it runs the sink's query."""
    rewrite(job.context, sink, lambda _: {"withheld": False})
    progress = {
        "sink": sink,
        "state": "running",
        "updated_ms": now_ms(),
        "offsets": {TOPIC: {"0": 5 - behind}, OTHERS: {"0": 5}},
        "tables": {
            str(schema.table): {"trouble": troubles.get(str(schema.table))} for schema in (SCHEMA, OTHER)
        },
    }
    write_private(job.context.progress / f"{sink}.json", json.dumps(progress))
