"""What an ``add`` that was killed has registered: given again, it goes on with that or begins anew."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from connectors.base import Keys, Source
from headrace.config.pipeline import SchemaPolicy
from headrace.config.source import SourceSettings
from headrace.control.begun import noted
from headrace.control.capture import settings_of
from headrace.control.captured import captured_of
from headrace.control.registry import Adding, Registry, SinkEntry, SourceEntry, SourceTableEntry, now_ms
from headrace.control.sink_settings import checked_settings
from headrace.control.undone import begun_sinks
from headrace.model.errors import UsageError
from headrace.model.schema import TableId
from sinks import registry as kinds
from sinks.unheld import refuse_unknown

__all__ = [
    "asked_of",
    "asked_sink",
    "begun_sink",
    "begun_source",
    "is_same_sink",
    "is_same_source",
    "note",
    "refuse_going",
    "sink_exists",
    "source_exists",
]


def note(registry: Registry, entry: SourceEntry | SinkEntry, adding: Adding | None) -> None:
    """Note how far the command has come; None when it has ended. What is gone meanwhile is left alone."""
    with registry.begin() as session:
        found: SourceEntry | SinkEntry | None
        if isinstance(entry, SourceEntry):
            found = session.get(SourceEntry, entry.name)
        else:
            found = session.get(SinkEntry, entry.name)
        if found is not None and found.created_ms == entry.created_ms:
            found.adding = adding.value if adding else None


def begun_source(registry: Registry, name: str) -> SourceEntry | None:
    """Return the source of that name whose ``add`` has not ended; None when there is no source of the name.

    For who keeps other commands away: to anybody else, one that is at work looks like one that was killed.

    Raises:
        UsageError: When there is one that was added (``SOURCE_EXISTS``).
    """
    begun = noted(registry).get(name)
    if begun is not None:
        return begun.entry
    known = {entry.name: entry for entry in registry.sources()}.get(name)
    if known is not None and (known.adding is None or _is_used(registry, known)):
        raise source_exists(name)
    return known


def _is_used(registry: Registry, entry: SourceEntry) -> bool:
    """Return whether a source that would be begun anew is in use, whatever became of the command."""
    is_whole = entry.loaded_ms is not None or bool(registry.sinks(entry.name))
    return entry.adding == Adding.REGISTERED.value and is_whole


def begun_sink(registry: Registry, name: str) -> SinkEntry | None:
    """Return the sink of that name whose ``add`` has not ended, as :func:`begun_source` does.

    Raises:
        UsageError: When there is one that was added (``SINK_EXISTS``).
    """
    known = {entry.name: entry for entry in registry.sinks()}.get(name)
    if known is not None and known.adding is None:
        raise sink_exists(name)
    return known or begun_sinks(registry).get(name)


def source_exists(name: str) -> UsageError:
    """Return the refusal of the name of a source that there is already (``SOURCE_EXISTS``)."""
    return UsageError(
        f"There is a source “{name}” already; choose another name.",
        code="SOURCE_EXISTS",
        hint=f"headrace source show {name}",
    )


def refuse_going(source: SourceEntry | None, name: str) -> None:
    """Refuse to add a sink to a source that is gone, or is being removed (``SOURCE_GOING``)."""
    if source is None or source.adding == Adding.GOING.value:
        raise UsageError(
            f"The source {name} is being removed.",
            code="SOURCE_GOING",
            hint=f"headrace source remove {name}",
        )


def sink_exists(name: str) -> UsageError:
    """Return the refusal of the name of a sink that there is already (``SINK_EXISTS``)."""
    return UsageError(
        f"There is a sink “{name}” already; choose another name.",
        code="SINK_EXISTS",
        hint=f"headrace sink show {name}",
    )


def is_same_source(
    known: SourceEntry,
    source: Source,
    tables: Collection[TableId],
    keys: Keys,
    settings: SourceSettings,
    some: bool,
) -> bool:
    """Return whether a command asks for what is registered: database, tables, declared keys and settings.

    Args:
        known: The registered one.
        source: The database that is asked for.
        tables: The tables.
        keys: Declared keys.
        settings: What the worker can do is none of the command's.
        some: Whether tables that cannot be followed are to be left out.
    """
    schemas = {table.schema.table: table.schema for table in known.tables}
    asked, chosen = settings_of(known).model_copy(update={"bounded": settings.bounded}), set(tables)
    return (
        (known.address, asked) == (source.address, settings)
        and (schemas.keys() == chosen or (some and schemas.keys() < chosen))
        and all(schemas[table].key == tuple(key) for table, key in keys.items() if table in schemas)
    )


def asked_sink(
    name: str, kind: str, source: str, settings: Mapping[str, Any], on_schema_change: str
) -> SinkEntry:
    """Return a sink as a command asks for it: without targets, and with its secrets as they were given.

    Raises:
        UsageError: When the kind or its settings are none (``SINK_KIND_UNKNOWN``, ``SINK_SETTINGS_INVALID``).
    """
    return SinkEntry(
        name=name,
        kind=kind,
        source=source,
        settings=checked_settings(kind, source, settings),
        tables={},
        incomplete={},
        incomplete_ms={},
        on_schema_change=on_schema_change,
        created_ms=now_ms(),
        adding=Adding.REGISTERED.value,
    )


def asked_of(
    registry: Registry,
    name: str,
    kind: str,
    *,
    settings: Mapping[str, Any],
    source: str | None,
    tables: Sequence[TableId],
    on_schema_change: SchemaPolicy,
) -> tuple[SourceEntry, list[SourceTableEntry], SinkEntry]:
    """Return whose changes a sink is asked to have, of which tables, and the sink as :func:`asked_sink`.

    Raises:
        UsageError: When the source is being removed (``SOURCE_GOING``), or a table or a setting is none.
    """
    origin = registry.source(source) if source else registry.only_source()
    refuse_going(origin, origin.name)
    captured = captured_of(origin, tables)
    refuse_unknown(settings, [table.schema for table in captured], kinds.config_model(kind))
    return origin, captured, asked_sink(name, kind, origin.name, settings, on_schema_change.value)


def is_same_sink(known: SinkEntry, asked: SinkEntry, topics: Collection[str], some: bool) -> bool:
    """Return whether a command asks for what is registered: source, kind, tables, settings but for secrets.

    Args:
        known: The registered one.
        asked: What :func:`asked_sink` has returned.
        topics: The tables that it would have.
        some: Whether tables that the store refuses are to be left out.
    """
    there = known.tables.keys() | (known.left_out or {}).keys() if some else known.tables.keys()
    return _asked_for(known) == _asked_for(asked) and there == set(topics)


def _asked_for(entry: SinkEntry) -> tuple[object, ...]:
    secret = kinds.secret_names(entry.kind)
    plain = {
        name: value for name, value in entry.settings.items() if name not in secret and value is not None
    }
    return entry.kind, entry.source, entry.on_schema_change, plain
