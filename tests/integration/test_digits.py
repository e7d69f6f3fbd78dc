"""A numeric gets other digits, with no record of it: a store that holds so many only has to follow first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from connectors.watch import Sight
from headrace.config.pipeline import SchemaPolicy, write_private
from headrace.control.capture import source_of
from headrace.control.columns import compare
from headrace.control.pipelines import pipeline_of, spec_path
from headrace.control.registry import Registry, SinkEntry
from headrace.control.unfollowed import unfollowed
from headrace.control.verdicts import standing
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.registered import lonely, register

pytestmark = pytest.mark.stack

T = TableId("public", "t")
POLICIES = {"lake": SchemaPolicy.LENIENT, "strict": SchemaPolicy.EXCEPTION, "free": SchemaPolicy.IGNORE}
QUIET = (
    "ALTER TABLE t ALTER name TYPE varchar(20)",
    "ALTER TABLE t ALTER amount SET DEFAULT 3",
)
GROWN = {
    "more": ("ALTER TABLE t ALTER amount TYPE numeric(12, 2)", "amount", set[str]()),
    "any": ("ALTER TABLE t ALTER amount TYPE numeric", "amount", set[str]()),
    "of an array": ("ALTER TABLE t ALTER amounts TYPE numeric(12, 2)[]", "amounts", {"COLUMN_RETYPED"}),
    "another scale": ("ALTER TABLE t ALTER amount TYPE numeric(12, 4)", "amount", {"COLUMN_RETYPED"}),
}


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "digits") as made:
        made.run(
            "CREATE DOMAIN price AS numeric(8, 2)",
            "CREATE TABLE t (id int PRIMARY KEY, amount numeric(10, 2), amounts numeric(10, 2)[],"
            " price price, free numeric, name varchar(10))",
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "INSERT INTO t VALUES (1, 2.25, '{2.25}', 1, 1, 'n')",
        )
        yield made


@pytest.mark.parametrize("change", GROWN)
def test_other_digits_of_a_numeric_are_told_until_every_sink_has_followed(
    database: Database, tmp_path: Path, change: str
) -> None:
    context = lonely(tmp_path)
    capture = register(context, "digits", database.dsn, T)
    registry = Registry(context.registry)
    entry = registry.source("digits")
    topic = entry.tables[0].topic
    for name, policy in POLICIES.items():
        told = SinkEntry(
            name=name,
            kind="memory",
            source="digits",
            settings={},
            tables={topic: {}},
            incomplete={},
            incomplete_ms={},
            on_schema_change=policy.value,
            created_ms=1,
        )
        with registry.begin() as session:
            session.add(told)
        path = spec_path(context, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        spec = pipeline_of(context, entry, told, entry.tables)
        write_private(path, spec.model_dump_json())
    source = source_of(context, entry)
    watch = source.watch(capture)

    def behind(sight: Sight) -> set[str]:
        return {sink for sink, _ in unfollowed(context, registry, entry, sight, ())}

    try:
        sight = watch.look({})
        assert behind(sight) == set()
        database.run(*QUIET)
        sight = watch.look(sight.facts)
        assert (behind(sight), [*sight.troubles]) == (set(), [])
        done, column, codes = GROWN[change]
        database.run(done)
        sight = watch.look(sight.facts)
        assert {one.code for one in sight.troubles} == codes
        assert behind(sight) == {"lake", "strict"}
        assert {(one.sink, one.state, one.remedy) for one in standing(registry, "digits")} == {
            (sink, "degraded", "headrace source refresh digits") for sink in ("lake", "strict")
        }
        assert all(f"of other digits: {column})" in one.reason for one in standing(registry, "digits"))
        (found,) = compare(context, "digits", ["lake"]).tables
        assert any(one.startswith(f"{column}: ") for one in found.retyped)
        # As it is when a sink has followed.
        spec = pipeline_of(context, entry, registry.sinks("digits")[0], entry.tables)
        (table,) = spec.tables
        now = replace(found.schema, former=())
        followed = spec.model_copy(update={"tables": (table.model_copy(update={"table": now.as_dict()}),)})
        write_private(spec_path(context, "lake"), followed.model_dump_json())
        assert behind(sight) == {"strict"}
    finally:
        watch.close()
        source.teardown(capture)
