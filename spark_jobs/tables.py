"""The tables of a pipeline: what they look like, and which topic carries which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.config.pipeline import OriginSpec, PipelineSpec
from headrace.model.change import Origin
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema

__all__ = ["Tables"]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a pipeline.

    Args:
        schemas: By name.
        topics: Topic → table and epoch.
        origin: Whom to ask for values that the connector may have lost.
    """

    schemas: Mapping[TableId, TableSchema]
    topics: Mapping[str, tuple[TableId, int]]
    origin: OriginSpec | None = None

    @classmethod
    def of(cls, spec: PipelineSpec) -> Tables:
        """Return those of ``spec``."""
        named = [(table, table.schema_) for table in spec.tables]
        return cls(
            {schema.table: schema for _, schema in named},
            {table.topic: (schema.table, table.epoch) for table, schema in named},
            spec.origin,
        )

    def place(self, origin: Origin) -> tuple[TableId, int]:
        """Return the table a record belongs to and its version there."""
        table, epoch = self.topics[origin.topic]
        return table, Position(epoch, origin.offset, origin.partition).version
