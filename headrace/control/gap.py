"""Whether changes are missing between the database and Kafka: asked of facts, never of a good feeling."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.base import Hold
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect, ConnectorState
from headrace.control.context import Context
from headrace.control.history import left_while_loading, moved, note_position, went_back
from headrace.control.registry import Registry, SourceEntry
from headrace.model.errors import SourceError

__all__ = ["START_OVER", "another_key", "find_gap", "gap_between", "gap_error", "gap_told_by"]

START_OVER = "headrace recover {name}"

_POSITIONS = ("lsn", "lsn_proc", "lsn_commit")


def gap_error(name: str, reason: str) -> SourceError:
    """Return the error of a command that would hide that changes of a source are lost (``SOURCE_GAP``)."""
    return SourceError(
        f"Changes of {name} are lost: {reason}.", code="SOURCE_GAP", hint=START_OVER.format(name=name)
    )


def another_key(source: str, sinks: Sequence[str]) -> str:
    """Return what to do when a table has another key: other rows are meant than those mirrored."""
    removing = "".join(f"headrace sink remove {sink} --purge; " for sink in sinks)
    return f"{removing}headrace source remove {source}; then add them again"


def find_gap(context: Context, entry: SourceEntry) -> str:
    """Ask database and Connect; return why changes of the source are lost, empty when they are not."""
    capture = capture_of(context, entry)
    hold = source_of(context, entry).hold(capture)
    with Connect(context.connect_url) as connect:
        return gap_between(context, connect, entry, hold, connect.state(capture.connector))


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
    context: Context, connect: Connect, entry: SourceEntry, hold: Hold, state: ConnectorState
) -> str:
    """Return why changes are lost, given what database and Connect say; remember where the log is if not.

    While the connector is at rest, the slot must not have moved past the position Connect has
    stored: somebody else has then consumed what lies between. The connector itself does not
    notice this, whatever its ``offset.mismatch.strategy``. Where the log went to another timeline and
    nothing is missing, the connector is let through to it.
    """
    if told := gap_told_by(entry, hold):
        return told
    if state.position_lost:
        return "the slot no longer has what the connector was to read next"
    if entry.loaded_ms is None:
        return left_while_loading(entry, hold)
    stored = connect.offset(f"headrace_{entry.name}")
    read = max((int(stored[name]) for name in _POSITIONS if stored.get(name) is not None), default=None)
    if back := went_back(entry, hold, read, at_rest=state.at_rest):
        return back
    if not state.at_rest or hold.confirmed is None:
        # A worker that has just started knows neither the connector nor its position yet.
        _go_on(context, connect, entry, hold, read)
        return ""
    if read is None:
        return "Connect has lost the position up to which it has read"
    if hold.confirmed > read:
        return f"the slot was moved past {hold.confirmed - read} bytes of WAL that were never read"
    _go_on(context, connect, entry, hold, read)
    return ""


def _go_on(context: Context, connect: Connect, entry: SourceEntry, hold: Hold, read: int | None) -> None:
    """Remember where the log is; let the connector read the timeline that the database has gone to."""
    registry = Registry(context.registry)
    if hold.timeline is not None and moved(entry, hold):
        capture = capture_of(context, entry)
        has = connect.config(capture.connector)
        wanted = source_of(context, entry).follow(capture, has, hold.timeline)
        if has and has != wanted:
            connect.reconfigure(capture.connector, wanted)
            registry.note(f"source {entry.name}", "failover followed", why=f"timeline {hold.timeline}")
    note_position(registry, entry, hold, read)
