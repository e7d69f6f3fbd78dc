"""Whether changes are missing between the database and Kafka: asked of facts, never of a good feeling."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from connectors.base import Hold
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect, ConnectorState
from headrace.control.context import Context
from headrace.control.failover import after_failover, delivered, keep_fence
from headrace.control.history import moved, note_position, went_back
from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.control.remedies import another_name
from headrace.model.errors import HeadraceError, SourceError

__all__ = ["START_OVER", "find_gap", "gap_between", "gap_error", "gap_told_by", "start_over"]

START_OVER = "headrace recover {name}"


def start_over(name: str, hold: Hold | None, sinks: Sequence[SinkEntry]) -> str:
    """Return what mends a source whose changes are lost.

    Args:
        name: The source.
        hold: What the database says; None when it does not answer. Where another database has a slot of the
            source's name, the connector can make none: no recovery helps, and that slot may be in use.
        sinks: The source's sinks.
    """
    if hold is not None and hold.elsewhere:
        return another_name(name, [sink.name for sink in sinks])
    return START_OVER.format(name=name)


def gap_error(context: Context, entry: SourceEntry, reason: str) -> SourceError:
    """Return the error of a command that would hide that changes of a source are lost (``SOURCE_GAP``)."""
    hold = None
    with suppress(HeadraceError):
        hold = source_of(context, entry).hold(capture_of(context, entry))
    return SourceError(
        f"Changes of {entry.name} are lost: {reason}.",
        code="SOURCE_GAP",
        hint=start_over(entry.name, hold, Registry(context.registry).sinks(entry.name)),
    )


def find_gap(context: Context, entry: SourceEntry, *, acts: bool = False) -> str:
    """Ask database and Connect; return why changes of the source are lost, empty when they are not.

    Args:
        context: The installation.
        entry: The source.
        acts: Whether to let the connector read on after a failover that has lost nothing.
    """
    capture = capture_of(context, entry)
    hold = source_of(context, entry).hold(capture)
    with Connect(context.connect_url) as connect:
        state = connect.state(capture.connector)
        return gap_between(context, connect, entry, hold, state, acts=acts)


def gap_told_by(entry: SourceEntry, hold: Hold) -> str:
    """Return why changes are lost by what the database says alone; empty when it does not say so."""
    if entry.gap:
        return entry.gap
    if hold.lost and (entry.loaded_ms is not None or hold.exists):
        return hold.lost
    if entry.system and hold.system and entry.system != hold.system:
        return "the database is another cluster than the one that was added"
    return ""


def gap_between(
    context: Context, connect: Connect, entry: SourceEntry, hold: Hold, state: ConnectorState, *, acts: bool
) -> str:
    """Return why changes are lost, given what database and Connect say; remember where the log is if not.

    While the connector is at rest, the slot must not have moved past the position Connect has
    stored: somebody else has then consumed what lies between. The connector itself does not
    notice this, whatever its ``offset.mismatch.strategy``. With ``acts`` the connector is let through to
    another timeline of the log when nothing is missing, and to none otherwise.
    """
    if told := gap_told_by(entry, hold):
        return told
    if state.position_lost:
        return "the slot no longer has what the connector was to read next"
    if moved(entry, hold):
        return after_failover(context, connect, entry, hold, state, acts=acts)
    if acts:
        keep_fence(context, connect, entry)
    return "" if entry.loaded_ms is None else _missed(context, connect, entry, hold, state, acts=acts)


def _missed(
    context: Context, connect: Connect, entry: SourceEntry, hold: Hold, state: ConnectorState, *, acts: bool
) -> str:
    """Return why what the connector has delivered and what the log has do not meet."""
    registry = Registry(context.registry)
    # Connect reads the positions of all sources to tell one. Of a connector that moves on it is only kept.
    asked = acts or state.at_rest
    read = delivered(connect, entry) if asked else entry.read
    if back := went_back(entry, hold, None, at_rest=False):
        return back
    if went_back(entry, hold, read, at_rest=state.at_rest):
        # It may have delivered what was written since the log was looked at, and have come to rest.
        now = source_of(context, entry).hold(capture_of(context, entry))
        back = "" if moved(entry, now) else went_back(entry, now, read, at_rest=state.at_rest)
        return back or gap_between(context, connect, entry, now, state, acts=acts)
    if not state.at_rest or hold.confirmed is None:
        # A worker that has just started knows neither the connector nor its position yet.
        note_position(registry, entry, hold, read, asked=asked)
        return ""
    if read is None:
        return "Connect has lost the position up to which it has read"
    if hold.confirmed > read:
        return f"the slot was moved past {hold.confirmed - read} bytes of WAL that were never read"
    note_position(registry, entry, hold, read)
    return ""
