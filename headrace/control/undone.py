"""Topics and targets that a command makes before it registers them, noted first: so that a name undoes it.

The note goes in the transaction that registers them, or when they are gone again. A sink that was begun and
is not registered goes by its name, as one that is; what was begun for further tables goes with source and
sink.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from headrace.control.entries import Adding, BegunTargetEntry, SinkEntry, SourceTableEntry
from headrace.control.registry import Registry, now_ms
from headrace.model.schema import TableId, TableSchema

__all__ = [
    "begun_sinks",
    "begun_targets",
    "begun_topics",
    "forget",
    "named_sink",
    "note_targets",
    "note_topics",
    "noted_topics",
    "settled",
]


def note_topics(registry: Registry, source: str, topics: Mapping[str, TableSchema]) -> None:
    """Note topics that are about to be made for tables of a source."""
    with registry.begin() as session:
        for topic, schema in topics.items():
            session.merge(_entry("", topic, source, True, schema.as_dict(), {}, {}))


def note_targets(
    registry: Registry,
    entry: SinkEntry,
    facts: Mapping[str, Mapping[str, object]],
    tables: Sequence[SourceTableEntry],
    new: Collection[TableId],
) -> None:
    """Note targets that are about to be made at a sink.

    Args:
        registry: The registry.
        entry: The sink; it need not be registered.
        facts: Topic → the target's facts.
        tables: Which tables.
        new: Those of whose target there is nothing yet.
    """
    asked: dict[str, object] = {
        "kind": entry.kind,
        "settings": entry.settings,
        "on_schema_change": entry.on_schema_change,
        "left_out": entry.left_out,
    }
    with registry.begin() as session:
        for table in tables:
            told = dict(facts[table.topic])
            before = session.get(BegunTargetEntry, (entry.name, table.topic))
            made = table.schema.table in new or (before is not None and before.made)
            session.merge(_entry(entry.name, table.topic, entry.source, made, table.table, told, asked))


def _entry(
    sink: str,
    topic: str,
    source: str,
    made: bool,
    table: dict[str, object],
    facts: dict[str, object],
    asked: dict[str, object],
) -> BegunTargetEntry:
    return BegunTargetEntry(
        sink=sink,
        topic=topic,
        source=source,
        at_ms=now_ms(),
        made=made,
        table=table,
        facts=facts,
        asked=asked,
    )


def settled(session: Session, sink: str, topics: Iterable[str]) -> None:
    """Forget notes, in the transaction that registers what they are about; ``sink`` is empty for topics."""
    found = delete(BegunTargetEntry).where(BegunTargetEntry.sink == sink)
    session.execute(found.where(BegunTargetEntry.topic.in_([*topics])))


def forget(registry: Registry, topics: Iterable[str], *, sink: str = "") -> None:
    """Forget what was begun and is gone again, or is left on purpose."""
    with registry.begin() as session:
        settled(session, sink, topics)


def begun_topics(registry: Registry, source: str) -> list[str]:
    """Return the topics that were begun for a source and are not registered."""
    return [found.topic for found in _of(registry, "") if found.source == source]


def noted_topics(registry: Registry, sink: str) -> list[str]:
    """Return the topics of whose targets at a sink anything is noted."""
    return [found.topic for found in _of(registry, sink)]


def begun_targets(registry: Registry, sink: str) -> list[SourceTableEntry]:
    """Return the tables whose targets at a sink were begun; they were not there before."""
    return [
        SourceTableEntry(source=one.source, topic=one.topic, place=0, topic_id="", epoch=0, table=one.table)
        for one in _of(registry, sink)
        if one.made
    ]


def begun_sinks(registry: Registry) -> dict[str, SinkEntry]:
    """Return by name the sinks that were begun and are not registered; they are in no registry."""
    begun: dict[str, list[BegunTargetEntry]] = {}
    with registry.reading() as session:
        known = {"", *session.scalars(select(SinkEntry.name))}
        for one in session.scalars(
            select(BegunTargetEntry).order_by(BegunTargetEntry.sink, BegunTargetEntry.topic)
        ):
            if one.sink not in known:
                begun.setdefault(one.sink, []).append(one)
    return {name: _sink(found) for name, found in begun.items()}


def named_sink(registry: Registry, name: str) -> SinkEntry:
    """Return a sink that is registered, or one that was begun.

    Raises:
        UsageError: When there is neither (``SINK_UNKNOWN``).
    """
    begun = begun_sinks(registry).get(name)
    return begun if begun is not None else registry.sink(name)


def _of(registry: Registry, sink: str) -> list[BegunTargetEntry]:
    query = select(BegunTargetEntry).where(BegunTargetEntry.sink == sink).order_by(BegunTargetEntry.topic)
    with registry.reading() as session:
        return list(session.scalars(query))


def _sink(found: Sequence[BegunTargetEntry]) -> SinkEntry:
    first = found[0]
    return SinkEntry(
        name=first.sink,
        source=first.source,
        tables={one.topic: one.facts for one in found},
        incomplete={},
        incomplete_ms={},
        created_ms=first.at_ms,
        adding=Adding.REGISTERED.value,
        **first.asked,
    )
