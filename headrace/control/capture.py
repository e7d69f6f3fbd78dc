"""From a registry entry back to the things it stands for: the database, the capture, the secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from connectors import registry as kinds
from connectors.base import Capture, Source
from headrace.config.secrets import SecretRef
from headrace.config.source import SourceSettings
from headrace.control.context import Context
from headrace.control.entries import WatchEntry
from headrace.control.registry import Registry, SourceEntry
from headrace.model.errors import SourceError

__all__ = ["capture_now", "capture_of", "last_look", "secret_of", "settings_of", "source_of"]


def secret_of(context: Context, name: str) -> SecretRef:
    """Return where the source's password lies."""
    return SecretRef(context.secrets / f"{name}.properties", "password")


def source_of(context: Context, entry: SourceEntry) -> Source:
    """Return the entry's database, with its password.

    Raises:
        SourceError: When the secret file is gone (``SOURCE_SECRET_LOST``).
    """
    try:
        password = secret_of(context, entry.name).read()
    except (OSError, KeyError) as error:
        raise SourceError(
            f"The password of source {entry.name} cannot be read.",
            code="SOURCE_SECRET_LOST",
            hint=f"Write password=… to {context.secrets / entry.name}.properties, mode 0600.",
        ) from error
    left_out = settings_of(entry).columns_left_out
    seen = last_look(context, entry.name) if left_out else {}
    return kinds.build(entry.kind, entry.address, password, entry.name, left_out, seen)


def last_look(context: Context, name: str) -> Mapping[str, Any]:
    """Return what the watcher has seen of a source; nothing when it has not looked yet."""
    with Registry(context.registry).reading() as session:
        kept = session.get(WatchEntry, name)
        return kept.facts if kept else {}


def settings_of(entry: SourceEntry) -> SourceSettings:
    """Return how the entry is read."""
    # A source of before there was the converter has none.
    return SourceSettings(**{"bounded": False, **entry.settings})


def capture_of(context: Context, entry: SourceEntry) -> Capture:
    """Return what the entry captures."""
    return Capture(
        source=entry.name,
        tables=tuple(table.schema for table in entry.tables),
        placeholder=entry.placeholder,
        password=secret_of(context, entry.name).placeholder,
        settings=settings_of(entry),
        timeline=entry.timeline,
        system=entry.system,
    )


def capture_now(source: Source, capture: Capture) -> Capture:
    """Return the capture with its tables as the catalogue has them now, and with the columns to leave out.

    The registry does not keep those; the connector's configuration names them.
    """
    declared = {schema.table: schema.key for schema in capture.tables if schema.declared}
    tables = [schema.table for schema in capture.tables]
    return replace(capture, tables=tuple(source.catalogue(tables, declared)))
