"""Names that a person filters by: one that was never known is refused, for an empty answer would please."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from sqlalchemy import select

from headrace.control.begun import noted
from headrace.control.context import Context
from headrace.control.entries import DeadLetterEntry, JournalEntry, ResnapshotEntry, SourceTableEntry
from headrace.control.pipelines import orphans
from headrace.control.registry import Registry
from headrace.model.errors import UsageError
from headrace.model.schema import TableId

__all__ = ["known_sink", "known_source", "known_table", "nearest", "refuse_without_sources"]


def nearest(name: str, known: Collection[str], what: str = "Known") -> str:
    """Return a hint that names what is nearest to a name, and all that are known."""
    close = get_close_matches(name, known, 1)
    meant = f"Did you mean {close[0]}? " if close else ""
    return f"{meant}{what}: {', '.join(sorted(known)) or 'none'}."


def known_source(registry: Registry, name: str) -> str:
    """Return the name of a source that is registered, or that the journal or a run tells of.

    Raises:
        UsageError: When none ever had it (``SOURCE_UNKNOWN``).
    """
    with registry.reading() as session:
        told = set(session.scalars(select(ResnapshotEntry.source).distinct()))
    known = told | {entry.name for entry in registry.sources()} | _journalled(registry, "source")
    if name not in known:
        raise UsageError(
            f"There is no source “{name}”, and there was none.",
            code="SOURCE_UNKNOWN",
            hint=nearest(name, known),
        )
    return name


def known_sink(context: Context, registry: Registry, name: str) -> str:
    """Return the name of a sink that is registered, that the journal tells of, or that has left letters.

    Raises:
        UsageError: When none ever had it (``SINK_UNKNOWN``).
    """
    with registry.reading() as session:
        told = set(session.scalars(select(DeadLetterEntry.sink).distinct()))
    told |= {path.name for path in context.dead_letters.glob("*") if path.is_dir()}
    known = told | {entry.name for entry in registry.sinks()} | _journalled(registry, "sink")
    if name not in known:
        raise UsageError(
            f"There is no sink “{name}”, and there was none.", code="SINK_UNKNOWN", hint=nearest(name, known)
        )
    return name


def known_table(registry: Registry, table: TableId) -> str:
    """Return the text of a table that is captured, that was, or of which there are letters.

    Raises:
        UsageError: When none of that name is known (``TABLE_UNKNOWN``).
    """
    with registry.reading() as session:
        known = set(session.scalars(select(DeadLetterEntry.table).distinct()))
        known |= {str(entry.schema.table) for entry in session.scalars(select(SourceTableEntry))}
        for entry in session.scalars(select(JournalEntry).where(JournalEntry.subject.like("source %"))):
            known |= set(map(str, entry.detail.get("tables") or ()))
    if str(table) not in known:
        raise UsageError(
            f"There is no table {table} in any source.",
            code="TABLE_UNKNOWN",
            hint=nearest(str(table), known),
        )
    return str(table)


def refuse_without_sources(context: Context) -> None:
    """Refuse to tell how far stores are while nothing is followed, and nothing that was is left.

    Raises:
        UsageError: With code ``NO_SOURCE``.
    """
    registry = Registry(context.registry)
    if not (registry.sources() or noted(registry) or orphans(context, registry)):
        raise UsageError(
            "No source is registered: nothing is followed, so no store can be behind.",
            code="NO_SOURCE",
            hint="headrace source add NAME env:URL",
        )


def _journalled(registry: Registry, kind: str) -> set[str]:
    with registry.reading() as session:
        subjects = session.scalars(select(JournalEntry.subject).distinct()).all()
    return {name for found, _, name in (subject.partition(" ") for subject in subjects) if found == kind}
