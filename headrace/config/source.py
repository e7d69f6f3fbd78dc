"""What a user may say about a source, and the names derived from it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from headrace.model.errors import UsageError
from headrace.model.position import MAX_PARTITIONS
from headrace.model.schema import TableId

__all__ = ["NAME", "SourceSettings", "valid_name"]

NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_OF_COMMANDS = ("abort", "list", "pause", "resume", "show", "start", "wait")


def valid_name(name: str, *, of: str) -> str:
    """Return ``name`` when it may name a source or a sink.

    The rule keeps every derived name legal: slot, publication, topic, index, key prefix, file.

    Raises:
        UsageError: When it may not (``NAME_INVALID``).
    """
    if of == "source" and name in _OF_COMMANDS:
        raise UsageError(
            f"“{name}” cannot name a source: `headrace resnapshot {name}` is a command of its own.",
            code="NAME_INVALID",
            hint=f"Choose another name, such as {name}_db.",
        )
    if NAME.fullmatch(name):
        return name
    raise UsageError(
        f"“{name}” cannot name a {of}.",
        code="NAME_INVALID",
        hint="Use 1 to 31 lower-case letters, digits and underscores, beginning with a letter.",
    )


class SourceSettings(BaseModel):
    """How a source is read.

    Args:
        heartbeat_ms: How often the connector writes its beat; the grain of freshness, milliseconds.
        snapshot_threads: Parallel readers of the initial snapshot.
        snapshot_chunk_rows: Rows read at once by an incremental snapshot.
        load_by_run_mib: A table of at least so many MiB is first loaded by a run; smaller ones by the
            connector's initial snapshot, before it streams.
        retention_ms: How long topics keep changes; -1 for ever, which lets a later sink load from them.
        partitions: Partitions of each table's topic; with several, one table's changes are applied
            by several tasks at once.
        max_record_bytes: A change whose record is larger is set aside by name; the others go on.
        leave_out: Columns that are not captured, as schema, table and column.
        bounded: Whether the Connect worker has the converter that does so. Without it such a change stops
            the connector.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    heartbeat_ms: Annotated[int, Field(ge=100, le=600_000)] = 1_000
    snapshot_threads: Annotated[int, Field(ge=1, le=16)] = 1
    snapshot_chunk_rows: Annotated[int, Field(ge=16, le=100_000)] = 8_192
    load_by_run_mib: Annotated[int, Field(ge=0)] = 512
    retention_ms: Annotated[int, Field(ge=-1)] = -1
    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = 1
    max_record_bytes: Annotated[int, Field(ge=1 << 20, le=64 << 20)] = 16 << 20
    leave_out: tuple[tuple[str, str, str], ...] = ()
    bounded: bool = True

    @property
    def columns_left_out(self) -> dict[TableId, list[str]]:
        """Return the columns that are not captured, by table."""
        found: dict[TableId, list[str]] = {}
        for schema, table, column in self.leave_out:
            found.setdefault(TableId(schema, table), []).append(column)
        return found
