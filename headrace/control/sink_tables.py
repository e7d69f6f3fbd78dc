"""The tables that a new sink is to have, and what is said of it before it is there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.config.pipeline import SchemaPolicy, Swept
from headrace.control.kafka import Kafka
from headrace.control.registry import SinkEntry, SourceTableEntry
from headrace.control.sink_settings import shown_secrets
from headrace.control.spared import Spared, noted, spared
from headrace.model.finding import Finding
from headrace.model.pasted import command
from headrace.model.schema import TableId
from sinks.about import ROTATE
from sinks.base import Sink

__all__ = ["asked", "leaving_out", "trimmed"]


def trimmed(
    kafka: Kafka, captured: Sequence[SourceTableEntry], reread: Mapping[str, Swept]
) -> dict[str, Any]:
    """Return the topics from which a new sink can no longer load every row."""
    ends = kafka.ends([table.topic for table in captured])
    whole = {(topic, n): mark for topic, told in reread.items() for n, mark in enumerate(told.marks)}
    return {place[0]: first for place, (first, _) in ends.items() if first > whole.get(place, 0)}


def asked(
    sink: Sink, entry: SinkEntry, captured: Sequence[SourceTableEntry], *, skip: bool, again: str
) -> tuple[list[SourceTableEntry], Spared]:
    """Ask a store about the tables of a sink that is not there yet; changes nothing there.

    Args:
        sink: The store.
        entry: The sink; which tables it leaves out is noted in it.
        captured: The tables that are asked for.
        skip: Whether those that the store refuses for themselves are to be left out.
        again: The command that leaves them out.

    Returns:
        The tables that the sink is to mirror, and what the store has said.
    """
    told = _before_adding(sink.check([table.schema for table in captured]))
    left = spared(told, [table.schema.table for table in captured], skip=skip, again=again)
    entry.left_out = noted(left.unfit, captured)
    return [table for table in captured if table.schema.table not in left.unfit], left


def leaving_out(
    name: str,
    kind: str,
    settings: Mapping[str, Any],
    *,
    source: str | None,
    tables: Sequence[TableId],
    take_over: bool,
    on_schema_change: SchemaPolicy,
    wait: bool = True,
) -> str:
    """Return the command that adds a sink and leaves out what its store refuses.

    Empty when a secret would stand in it that was given as it is.
    """
    if shown_secrets(kind, settings):
        return ""
    words = ["headrace", "sink", "add", name, "--kind", kind]
    words += ["--source", source] if source else []
    words += [word for table in tables for word in ("--table", str(table))]
    words += [word for pair in settings.items() for word in ("--set", _setting(*pair))]
    if on_schema_change is not SchemaPolicy.LENIENT:
        words += ["--on-schema-change", on_schema_change.value]
    words += ["--take-over"] * take_over + ["--no-wait"] * (not wait)
    return command(*words, "--skip-unfit")


def _setting(name: str, value: Any) -> str:
    return f"{name}={value if isinstance(value, (str, Path)) else json.dumps(value, default=str)}"


def _before_adding(findings: Sequence[Finding]) -> list[Finding]:
    """Return what a store's check says in words for a sink that is not there yet.

    What would be changed of one that is there is given at once.
    """
    return [
        replace(found, hint=found.hint.replace(f"or {ROTATE}", "or ").replace(ROTATE, "Add it with "))
        for found in findings
    ]
