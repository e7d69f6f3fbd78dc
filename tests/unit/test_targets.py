"""What tells a table's target from another is remembered, and what an older version noted does no harm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from headrace.config.pipeline import PipelineSpec, TableSpec
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.base import Sink
from spark_jobs.checkpoint import put_aside
from spark_jobs.targets import Targets, newest_targets

SCHEMA = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32),), ("id",))


class Store:
    """Says what its targets are, and nothing else."""

    def __init__(self, told: str) -> None:
        self.told = told

    def identities(self, schemas: Sequence[TableSchema]) -> Mapping[TableId, str]:
        return {schema.table: self.told for schema in schemas}


def table(target: int = 0) -> TableSpec:
    return TableSpec(topic="t", epoch=1, table=SCHEMA.as_dict(), target=target)


def lost(checkpoint: Path, told: str) -> set[str]:
    """Return what a driver that starts anew finds lost, with a store that says ``told``."""
    settings: dict[str, Any] = {
        "settings": {},
        "source": "shop",
        "kafka_bootstrap": "h:1",
        "placeholder": "p",
    }
    spec = PipelineSpec(
        sink="search",
        kind="memory",
        tables=(table(2),),
        checkpoint=checkpoint,
        dead_letters=checkpoint / "dead",
        owner=checkpoint / "owner.json",
        home="here",
        **settings,
    )
    return Targets(spec).lost(cast("Sink", Store(told)))


def test_another_target_is_lost_also_for_a_driver_that_starts_anew(tmp_path: Path) -> None:
    assert lost(tmp_path, "one") == set()
    assert lost(tmp_path, "one") == set()
    assert lost(tmp_path, "two") == {"t"}
    assert put_aside(tmp_path) is None


def test_what_an_older_version_noted_of_every_index_is_not_taken_for_an_identity(tmp_path: Path) -> None:
    kept = {"identities": {"t@1.1": "/", "t@1.2": "/"}, "refilled": []}
    (tmp_path / "targets.json").write_text(json.dumps(kept))
    assert newest_targets(tmp_path, [table()])[0].target == 2
    assert lost(tmp_path, "one") == set()
    assert lost(tmp_path, "two") == {"t"}
    assert put_aside(tmp_path) is None
    assert newest_targets(tmp_path, [table()])[0].target == 2
