"""What a removal would take away, as the registry knows it: no server is asked and nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headrace.control.begun import named
from headrace.control.capture import capture_of, secret_of
from headrace.control.context import Context
from headrace.control.registry import Registry, SinkEntry
from headrace.control.sink_settings import secrets_of
from headrace.control.source_remove import refuse_used
from headrace.control.take_out import chosen_of
from headrace.control.topics import topics_of
from headrace.control.undone import begun_sinks, begun_targets, begun_topics, named_sink
from headrace.model.schema import TableId

__all__ = ["of_sink", "of_source", "of_tables"]


def of_source(context: Context, name: str, *, leave_database: bool = False) -> dict[str, list[str]]:
    """Return what goes with a source, by what it is.

    Raises:
        UsageError: When there is none (``SOURCE_UNKNOWN``), or sinks read from it (``SOURCE_IN_USE``).
    """
    registry = Registry(context.registry)
    entry = named(registry, name)
    refuse_used(registry, name)
    capture = capture_of(context, entry)
    ours = {
        "slot": [capture.connector],
        "publication": [capture.connector],
        "table": [str(capture.signals), str(capture.heartbeat)],
    }
    return {
        "topic": [*(topic.name for topic in topics_of(capture)), *begun_topics(registry, name)],
        "connector": [capture.connector],
        **({} if leave_database else ours),
        "file": [str(secret_of(context, name).path)],
    }


def of_sink(context: Context, name: str, *, purge: bool) -> dict[str, list[str]]:
    """Return what goes with a sink, by what it is; its targets and letters only with ``purge``.

    Raises:
        UsageError: When there is none (``SINK_UNKNOWN``).
    """
    registry = Registry(context.registry)
    begun = {table.topic for table in begun_targets(registry, name)}
    entry = named_sink(registry, name)
    gone = begun if name in begun_sinks(registry) else entry.tables
    held = [_target(topic, facts) for topic, facts in entry.tables.items() if topic in gone]
    letters = context.dead_letters / name
    return {
        "target": held if purge else [],
        "letters": [str(letters)] if purge and letters.exists() else [],
        "file": sorted(map(str, secrets_of(context, name))),
    }


def of_tables(context: Context, name: str, tables: Sequence[TableId], *, purge: bool) -> dict[str, list[str]]:
    """Return what goes with tables that are taken out of a source; targets only with ``purge``.

    Raises:
        UsageError: As :func:`headrace.control.take_out.take_out` does before it begins.
    """
    registry = Registry(context.registry)
    topics = [table.topic for table in chosen_of(registry, registry.source(name), tables)]
    held = [text for sink in registry.sinks(name) for text in _targets(sink, topics)]
    return {"topic": topics, "target": held if purge else []}


def _targets(sink: SinkEntry, topics: Collection[str]) -> list[str]:
    told = {topic: facts for topic, facts in sink.tables.items() if topic in topics}
    return [f"{sink.name}: {_target(topic, facts)}" for topic, facts in told.items()]


def _target(topic: str, facts: Mapping[str, Any]) -> str:
    """Return where a sink keeps the rows of a topic."""
    return f"{topic} ({', '.join(f'{name} {value}' for name, value in facts.items() if value)})"
