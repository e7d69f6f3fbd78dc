"""What a run is to be about, before it begins: which sinks are swept, and what it would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.control.registry import Registry, SinkEntry
from headrace.model.errors import UsageError
from headrace.model.schema import TableId

__all__ = ["Plan", "refuse_unmirrored", "sinks_of"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a resnapshot would do.

    Args:
        source: The source.
        tables: Table → end offset S of each partition of its topic now.
        sinks: Sinks that will be swept.
        rows: About how many rows will be read, by the database's statistics.
        left_out: Table → why the connector cannot read it anew.
    """

    source: str
    tables: dict[str, list[int]]
    sinks: tuple[str, ...]
    rows: int
    left_out: dict[str, str]


def sinks_of(registry: Registry, source: str, only: Sequence[str]) -> list[SinkEntry]:
    """Return the source's sinks of these names; all of them without any.

    Raises:
        UsageError: When one is not the source's (``SINK_OF_OTHER_SOURCE``).
    """
    found = registry.sinks(source)
    for name in only:
        if registry.sink(name).source != source:
            known = ", ".join(sink.name for sink in found) or "none"
            raise UsageError(
                f"Sink {name} does not read from {source}.",
                code="SINK_OF_OTHER_SOURCE",
                hint=f"Sinks of {source}: {known}.",
            )
    return [entry for entry in found if not only or entry.name in only]


def refuse_unmirrored(
    registry: Registry, source: str, tables: Sequence[TableId], only: Sequence[str]
) -> None:
    """Refuse tables that a person names and that none of the sinks mirrors which are named as well.

    They would be read, and nothing would be swept.

    Raises:
        UsageError: ``SINK_LACKS_TABLE``; or as of :func:`sinks_of`.
    """
    held = {topic for sink in sinks_of(registry, source, only) for topic in sink.tables}
    captured = {table.schema.table: table.topic for table in registry.source(source).tables}
    unheld = [str(table) for table in tables if table in captured and captured[table] not in held]
    if only and unheld:
        raise UsageError(
            f"Sink {', '.join(only)} does not mirror {', '.join(unheld)}: nothing would be swept there.",
            code="SINK_LACKS_TABLE",
            hint=f"headrace sink show {only[0]}",
        )
