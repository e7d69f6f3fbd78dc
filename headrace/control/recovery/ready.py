"""What keeps a new life from being made: asked before the former one is given up."""

from __future__ import annotations

from connectors.base import Hold
from headrace.control.capture import capture_of, source_of
from headrace.control.context import Context
from headrace.control.fitness import refuse_unfit
from headrace.control.gap import start_over
from headrace.control.registry import Registry, SourceEntry
from headrace.control.remedies import recover as again
from headrace.model.errors import SourceError, named

__all__ = ["refuse_unready", "slot_taken"]


def refuse_unready(context: Context, entry: SourceEntry) -> None:
    """Refuse a recovery that would give the former life up and could not make a new one.

    Raises:
        SourceError: When another database has a slot of the source's name (``SOURCE_SLOT_TAKEN``), or the
            database would not let us remove what is ours and make it anew, or read every row, with every
            reason.
    """
    source, capture = source_of(context, entry), capture_of(context, entry)
    if taken := slot_taken(context, entry, source.hold(capture)):
        raise taken
    # What our role cannot read would end the load when the former slot is gone.
    unread = source.rights_now([schema.table for schema in capture.tables])
    try:
        refuse_unfit([*source.check_anew(capture), *unread.values()])
    except SourceError as error:
        error.hint = f"{named(error.hint, source=entry.name)}\nThen: {again(entry.name)}"
        raise


def slot_taken(context: Context, entry: SourceEntry, hold: Hold) -> SourceError | None:
    """Return why a source cannot be recovered when the slot of its name is not its database's; else None."""
    if not hold.elsewhere:
        return None
    return SourceError(
        f"{entry.name} cannot be recovered: {hold.lost}.",
        code="SOURCE_SLOT_TAKEN",
        hint=start_over(entry.name, hold, Registry(context.registry).sinks(entry.name)),
    )
