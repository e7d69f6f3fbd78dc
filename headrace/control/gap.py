"""Whether changes are missing between the database and Kafka: asked of facts, never of a good feeling."""

from __future__ import annotations

from connectors.base import Hold
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect, ConnectorState
from headrace.control.context import Context
from headrace.control.registry import SourceEntry

__all__ = ["START_OVER", "find_gap", "gap_between"]

START_OVER = (
    "Start over: `headrace sink remove` for each sink (without --purge), `headrace source remove {name}`,"
    " then add the source and the sinks again; rows that are gone are removed from the sinks."
)

_POSITIONS = ("lsn", "lsn_proc", "lsn_commit")


def find_gap(context: Context, entry: SourceEntry) -> str:
    """Ask database and Connect; return why changes of the source are lost, empty when they are not."""
    capture = capture_of(context, entry)
    hold = source_of(context, entry).hold(capture)
    with Connect(context.connect_url) as connect:
        return gap_between(connect, entry, hold, connect.state(capture.connector))


def gap_between(connect: Connect, entry: SourceEntry, hold: Hold, state: ConnectorState) -> str:
    """Return why changes are lost, given what database and Connect say.

    While the connector is at rest, the slot must not have moved past the position Connect has
    stored: somebody else has then consumed what lies between. The connector itself does not
    notice this, whatever its ``offset.mismatch.strategy``.
    """
    if entry.gap:
        return entry.gap
    loaded = entry.loaded_ms is not None
    if hold.lost and (loaded or hold.exists):
        return hold.lost
    if entry.system and hold.system and entry.system != hold.system:
        return "the database is another cluster than the one that was added"
    if state.position_lost:
        return "the slot no longer has what the connector was to read next"
    if not loaded or state.running or hold.confirmed is None:
        return ""
    stored = connect.offset(f"headrace_{entry.name}")
    read = max((int(stored[name]) for name in _POSITIONS if stored.get(name) is not None), default=None)
    if read is None:
        return "Connect has lost the position up to which it has read"
    if hold.confirmed > read:
        return f"the slot was moved past {hold.confirmed - read} bytes of WAL that were never read"
    return ""
