"""A sink's store, opened to be asked or written by a command, and the tables that it mirrors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from headrace.control.registry import Registry, SinkEntry, SourceTableEntry
from headrace.model.errors import naming
from sinks import registry as kinds
from sinks.base import Sink

__all__ = ["open_sink", "opened_sink", "tables_of"]


def open_sink(entry: SinkEntry) -> Sink:
    """Return the entry's store; close it after use."""
    return kinds.build(entry.kind, entry.name, entry.settings)


@contextmanager
def opened_sink(entry: SinkEntry) -> Iterator[Sink]:
    """Yield the entry's store, closed after use; hints of its errors name the sink and its source."""
    with naming(entry.source, entry.name), closing(open_sink(entry)) as sink:
        yield sink


def tables_of(registry: Registry, entry: SinkEntry) -> list[SourceTableEntry]:
    """Return the tables the sink mirrors, in the source's order."""
    return [table for table in registry.source(entry.source).tables if table.topic in entry.tables]
