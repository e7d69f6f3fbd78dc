"""A registry that was lost: its pipelines still tell how the sources and sinks were added."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headrace.config.pipeline import PipelineSpec, SchemaPolicy
from headrace.control.capture import secret_of
from headrace.control.context import Context
from headrace.control.pipelines import orphans
from headrace.control.registry import Registry, SourceEntry
from headrace.control.remedies import recover
from headrace.model.pasted import command
from headrace.model.schema import TableId, TableSchema

__all__ = ["added_again", "password_left"]


def added_again(spec: PipelineSpec, lost: Sequence[PipelineSpec], known: Sequence[SourceEntry]) -> str:
    """Return the commands after which a lost pipeline's sink is there again; they can be pasted as they are.

    To add the source stops all of its sinks, so that they are told together.

    Args:
        spec: The pipeline.
        lost: All of which the registry knows nothing.
        known: The sources of which it knows.
    """
    siblings = [one for one in lost if one.source == spec.source]
    tables = {table.topic: table.schema_ for one in siblings for table in one.tables}
    for source in known:
        if source.name == spec.source:
            added = _sink(spec, [table.schema_ for table in spec.tables])
            # The registry is of before: what was mirrored since would be of a later life than all that comes.
            return f"{recover(source.name)} && {added}" if _is_older(source, spec) else added
    whole = [
        _sink(one, [table.schema_ for table in one.tables] if len(one.tables) < len(tables) else ())
        for one in siblings
    ]
    return " && ".join([_source(spec, list(tables.values())), *whole])


def _is_older(source: SourceEntry, spec: PipelineSpec) -> bool:
    epochs = {table.topic: table.epoch for table in source.tables}
    return any(table.epoch > epochs.get(table.topic, 0) for table in spec.tables)


def password_left(context: Context, name: str, url: str) -> str | None:
    """Return the password that is kept for a lost source whose own address, which has none, is given."""
    if not (context.registry.exists() or context.pipelines.exists()):
        return None  # nothing was ever here, and to ask makes nothing
    for spec in orphans(context, Registry(context.registry)):
        if spec.source == name and spec.origin is not None and spec.origin.address == url:
            with suppress(OSError, KeyError):
                return secret_of(context, name).read()
    return None


def _source(spec: PipelineSpec, tables: Sequence[TableSchema]) -> str:
    words = ["headrace", "source", "add", spec.source, spec.origin.address if spec.origin else "URL"]
    words += _tables(tables)
    for schema in tables:
        if schema.declared:
            words += ["--key", f"{schema.table}={','.join(schema.key)}"]
    for left in spec.origin.leave_out if spec.origin else ():
        table = TableId(left[0], left[1])
        words += ["--leave-out", f"{table}={left[2]}"]
    if (partitions := max(table.partitions for table in spec.tables)) > 1:
        words += ["--partitions", str(partitions)]
    return command(*words)


def _sink(spec: PipelineSpec, tables: Sequence[TableSchema]) -> str:
    words = ["headrace", "sink", "add", spec.sink, "--kind", spec.kind, "--source", spec.source]
    words += _tables(tables)
    if spec.on_schema_change is not SchemaPolicy.LENIENT:
        words += ["--on-schema-change", spec.on_schema_change.value]
    for name, value in sorted(spec.settings.items()):
        if value is not None:
            words += ["--set", f"{name}={_spelled(value)}"]
    return command(*words)


def _tables(tables: Sequence[TableSchema]) -> list[str]:
    return [word for schema in tables for word in ("--table", str(schema.table))]


def _spelled(value: Any) -> str:
    """Return a setting as ``--set`` reads it: a text as it stands, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
